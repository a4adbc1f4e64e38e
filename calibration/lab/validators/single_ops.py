"""Times torch's op database on this CPU, op call by op call, and says how far off the prices of those calls are.

    python -m placer.calibration.lab.validators.single_ops measure FILE [SECONDS]
    python -m placer.calibration.lab.validators.single_ops score FILE [PROFILE]

``measure`` adds a line to FILE for every op, size and number of threads, for so many seconds, and goes on where it
ended. ``score`` prices the calls of a record. Every other size of an op is held out of what the table is fitted to.
"""

from __future__ import annotations

import faulthandler
import json
import math
import statistics
import sys
import time
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from placer import machine
from placer.calibration.benchmarks import op_database
from placer.calibration.benchmarks.probe import Apply
from placer.calibration.measuring.faults import HungError, time_limit
from placer.calibration.measuring.in_place import time_step
from placer.calibration.measuring.op_record import TimedCall, read, timed_calls, written
from placer.calibration.measuring.step import Step
from placer.calibration.measuring.timing import LARGE_BLOCK
from placer.calibration.measuring.typical_ops import TypicalCall, scaled, typical_ops
from placer.decision import running_with
from placer.errors import PlacerError
from placer.machine import MeasuredSpeeds
from placer.pricing import Z90, Context, CostModel, beside, cpu_from_speeds, nearest_profile
from placer.profile import Profile, kind_of, load
from placer.tracing import trace_here

#: Seconds of a step that is timed, and sizes of each op; each has so many times the elements of the one before.
SHORTEST, LONGEST, SIZES, LARGER = 1.5e-4, 0.03, 4, 4.0
#: What the names of typical ops of a kind begin with.
KIND = "probe "
#: Factors of their shapes.
TIMES = (1, 2, 3, 4)
#: Ops after which the machine's speeds are measured again.
OPS_A_READING = 10
#: Seconds that one op may take in all, and one timing.
PATIENCE, SHARE = 2.5, 0.02


def measure(path: Path, seconds: float) -> None:
    """Time ops until ``seconds`` are over; those that ``path`` has are left as they are."""
    end = time.perf_counter() + seconds
    torch.empty(LARGE_BLOCK, dtype=torch.uint8)  # as calibration does
    done = {row["name"] for row in read(path)} if path.exists() else set()
    if not any(name.startswith(KIND) for name in done):
        for row in kinds():
            add(path, row)
    every = sorted(op_database.op_db, key=lambda info: zlib.crc32(op_database.name_of(info).encode()))
    if not done:
        add(path, {"name": "", "environment": machine.fingerprint()})
    for number, info in enumerate(every):
        name = op_database.name_of(info)
        if name in done:
            continue
        if time.perf_counter() > end:
            return
        if number % OPS_A_READING == 0:
            add(path, {"name": "", "speeds": asdict(machine.measure_speeds())})
        add(path, {"name": name, "started": True})
        faulthandler.dump_traceback_later(4.0 * PATIENCE, exit=True)  # some of MKL's functions never return
        with suppress(HungError), time_limit(2.0 * PATIENCE, name):
            for row in sizes_of(info):
                add(path, row)


def kinds() -> Iterator[dict[str, Any]]:
    """A typical op of each kind, of shapes that torch's samples do not have, at some sizes."""
    for kind, call in typical_ops().items():
        yield from sizes_of_call(f"{KIND}{kind}", call)


def sizes_of_call(name: str, call: TypicalCall) -> Iterator[dict[str, Any]]:
    """A call at some sizes, as far as its function takes them, at every number of threads."""
    for number, times in enumerate(TIMES):
        operands = tuple(map(torch.randn, scaled(call.shapes, times)))
        workload = op_database.step_of(Apply(call.function), operands, learns=False)
        try:
            rows = list(timed(op_database.Sized(name, times, workload, 0)))
        except (RuntimeError, PlacerError):  # a function that is made for its own shapes alone
            return
        yield from ({**row, "number": number} for row in rows if "calls" in row)


def sizes_of(info: Any) -> Iterator[dict[str, Any]]:
    """The op at some sizes that take long enough, at every number of threads."""
    begun, found, last, before = time.perf_counter(), 0, 0, 1.0
    factor, repeated = 4.0, False
    while found < SIZES and factor < 1e6 and time.perf_counter() - begun < PATIENCE:
        sized = op_database.sized(info, factor, repeated=repeated)
        if sized is None or sized.elements <= last:
            if repeated:
                return
            factor, repeated, last = 16.0, True, 0
            continue
        power = 1.0
        if last and sized.elements > last:
            power = max(math.log(sized.elements / last) / math.log(factor / before), 0.5)
        last, before = sized.elements, factor
        try:
            rows = list(timed(sized))
        except Exception as error:  # noqa: BLE001  an op that cannot be traced or timed is a finding
            yield {"name": sized.name, "factor": factor, "error": f"{type(error).__name__}: {error}"[:200]}
            return
        if not rows:
            return
        step = min(row["step"] for row in rows)
        if step >= SHORTEST:
            yield from ({**row, "number": found, "repeated": repeated} for row in rows)
            found += 1
            factor *= LARGER ** (1.0 / power)
        else:
            factor *= min(max(math.sqrt(2 * SHORTEST / step), 1.5), 6.0)


def timed(sized: op_database.Sized) -> Iterator[dict[str, Any]]:
    """The step and its op calls, with all threads and with one; nothing where it takes too long or too short."""
    step = Step(sized.workload, "cpu", None, copies_out=False)
    step.prepare()
    step()
    start = time.perf_counter()
    step()
    once = time.perf_counter() - start
    if once > LONGEST:
        return
    if once < 0.8 * SHORTEST:
        yield {"step": once}
        return
    trace = trace_here(sized.workload)
    context = Context.of(trace)
    for threads in sorted({torch.get_num_threads(), 1}, reverse=True):
        with running_with(threads):
            step()
            timing = time_step(step, trace, seconds=SHARE)
        yield {
            "name": sized.name,
            "factor": round(sized.factor, 3),
            "threads": threads,
            "step": timing.seconds,
            "matched": round(timing.matched, 3),
            "context": [context.footprint_bytes, context.recording, context.kinds, round(context.evicted, 3)],
            "calls": [written(op.call, op.host_seconds) for op in timing.ops if not op.call.view or op.call.in_place],
        }


def add(path: Path, row: dict[str, Any]) -> None:
    """Append a line."""
    with path.open("a") as lines:
        lines.write(json.dumps(row) + "\n")


#: Calls of so many seconds count, and a price within this factor is right.
COUNTED, RIGHT = 1e-4, 2.0


@dataclass(frozen=True)
class Scored:
    """A call, its price, the standard deviation of log(price), and what it took (seconds)."""

    timed: TimedCall
    price: float
    sigma: float

    @property
    def error(self) -> float:
        return math.log(self.price / self.timed.seconds)


def score(path: Path, known: Profile | None) -> list[Scored]:
    """The calls of a record's held-out sizes that take long enough, priced.

    By ``known``, a calibration of the record's machine; None: by the shipped profile nearest to it, at the speeds that
    were measured while the calls were timed, as the day-one estimate does.
    """
    environment = next(row["environment"] for row in read(path) if "environment" in row)
    nearest = nearest_profile(environment)
    models: dict[tuple[MeasuredSpeeds | None, int], CostModel] = {}
    found = []
    for timed in timed_calls(path):
        if not timed.held_out or timed.seconds < COUNTED:
            continue
        key = None if known is not None else timed.speeds, timed.threads
        if key not in models:
            speeds = beside(nearest, timed.speeds, timed.threads)
            estimate = cpu_from_speeds(nearest, kind_of(environment), speeds, timed.threads)
            models[key] = CostModel(estimate if known is None else known.fit("cpu", timed.threads))
        (price,), (sigma,), _ = models[key].price_works([timed.work])
        base = models[key].fit.interval.get("base", 0.0)
        found.append(Scored(timed, price, math.hypot(sigma, base)))
    return found


def summary(scored: Sequence[Scored]) -> str:
    """How many prices are right, how many intervals hold, and the middle error."""
    errors = [abs(s.error) for s in scored]
    right = sum(e < math.log(RIGHT) for e in errors) / len(errors)
    holds = sum(abs(s.error) < Z90 * s.sigma for s in scored) / len(errors)
    middle = math.exp(statistics.median(errors)) - 1.0
    return f"{len(errors)} calls: {right:.0%} within twice or half, interval holds {holds:.0%}, median {middle:.0%} off"


def main(command: str, file: str, *rest: str) -> int:
    """Run one of both commands."""
    if command == "measure":
        measure(Path(file), float(rest[0]) if rest else 200.0)
        return 0
    scored = score(Path(file), load(rest[0]) if rest else None)
    print(f"all: {summary(scored)}")
    for threads in sorted({s.timed.threads for s in scored}):
        print(f"{threads} threads: {summary([s for s in scored if s.timed.threads == threads])}")
    by_op: dict[str, list[Scored]] = {}
    for s in scored:
        by_op.setdefault(s.timed.call.op, []).append(s)
    ratio = {op: math.exp(statistics.median(s.error for s in some)) for op, some in by_op.items()}
    print("furthest off (predicted / measured):")
    for op in sorted(ratio, key=lambda op: -abs(math.log(ratio[op])))[:30]:
        print(f"  {op.removeprefix('aten::'):40s} {ratio[op]:6.2f}  {len(by_op[op])} calls")
    return 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main(*sys.argv[1:]))

"""Times ops on this CPU, and shows beside it what they are predicted to take: for whoever adds or changes a row.

    python -m placer.calibration.lab.validators.ops try OP...
    python -m placer.calibration.lab.validators.ops measure FILE [SECONDS]
    python -m placer.calibration.lab.validators.ops score FILE [PROFILE]

An OP is a name in torch's database of ops (``nn.functional.gelu``), or a call of operands x and y and their shapes:
``'torch.sinc(x) of 512x512'``. It takes some seconds. What a GPU of the catalog takes is predicted, not measured.
``measure`` times the whole database: it adds a line to FILE for every op, size and number of threads, for so many
seconds, and goes on where it ended. ``score`` prices the calls of such a record. Every other size of an op is held out
of what the table is fitted to (``placer.calibration.lab.published.cycles``).
"""

from __future__ import annotations

import difflib
import faulthandler
import json
import math
import statistics
import sys
import tempfile
import time
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from placer import machine
from placer.calibration.benchmarks.probe import Apply
from placer.calibration.lab import op_database
from placer.calibration.lab.op_record import TimedCall, read, timed_calls, written
from placer.calibration.lab.published.cycles import Samples, fit_one, sample_of
from placer.calibration.lab.typical_ops import TypicalCall, parsed, scaled, typical_ops
from placer.calibration.lab.validators.rows import ERRORS, errors, tables
from placer.calibration.measuring.faults import HungError, time_limit
from placer.calibration.measuring.in_place import time_step
from placer.calibration.measuring.step import Step
from placer.calibration.measuring.timing import LARGE_BLOCK
from placer.calibration.validation.compare import group_by
from placer.calibration.validation.table import show
from placer.decision import running_with
from placer.errors import PlacerError
from placer.machine import MeasuredSpeeds
from placer.pricing import FAMILIES, Z90, Context, CostModel, counted, cpu_from_speeds, device_model, nearest_profile
from placer.pricing.ops import COUNTED, NO_ROW, Op, table
from placer.pricing.speeds import beside
from placer.profile import Profile, kind_of, load
from placer.tracing import trace_here
from placer.units import format_count, format_seconds

#: Seconds of a step that is timed, and sizes of each op; each has so many times the elements of the one before.
SHORTEST, LONGEST, SIZES, LARGER = 1.5e-4, 0.03, 4, 4.0
#: What the names of typical ops of a kind begin with, and factors of their shapes.
KIND, TIMES = "probe ", (1, 2, 3, 4)
#: Ops after which the machine's speeds are measured again.
OPS_A_READING = 10
#: Seconds that one op may take in all, and one timing.
PATIENCE, SHARE = 2.5, 0.02
#: Seconds from which a call of a record counts.
LONG_ENOUGH = 1e-4
#: Share of an op's time from which on a call is part of what was asked for, not of what the sample does around it.
SHOWN = 0.05
#: A GPU whose price is shown too: nothing is measured on it.
GPU = "H100"


def measure(path: Path, seconds: float) -> None:
    """Time ops until ``seconds`` are over; those that ``path`` has are left as they are."""
    end = time.perf_counter() + seconds
    torch.empty(LARGE_BLOCK, dtype=torch.uint8)  # as calibration does
    done = {row["name"] for row in read(path)} if path.exists() else set()
    if not any(name.startswith(KIND) for name in done):
        for kind, call in typical_ops().items():
            for row in sizes_of_call(f"{KIND}{kind}", call):
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


def add(path: Path, row: dict[str, Any]) -> None:
    """Append a line."""
    with path.open("a") as lines:
        lines.write(json.dumps(row) + "\n")


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
    begun, taken, last, before = time.perf_counter(), 0, 0, 1.0
    factor, repeated = 4.0, False
    while taken < SIZES and factor < 1e6 and time.perf_counter() - begun < PATIENCE:
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
            yield from ({**row, "number": taken, "repeated": repeated} for row in rows)
            taken += 1
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


@dataclass(frozen=True)
class Scored:
    """A call beside its price, the interval of that, and what it took (seconds)."""

    timed: TimedCall
    predicted: float
    measured: float
    low: float
    high: float

    @property
    def threads(self) -> str:
        return format_count(self.timed.threads, "thread")

    @property
    def op(self) -> str:
        return self.timed.call.op.removeprefix("aten::")


def score_record(path: Path, calibrated: Profile | None) -> list[Scored]:
    """The calls of a record's held-out sizes that take long enough, priced.

    By ``calibrated``, a calibration of the record's machine; None: by the shipped profile nearest to it, at the speeds
    that were measured while the calls were timed, as the day-one estimate does.
    """
    environment = next(row["environment"] for row in read(path) if "environment" in row)
    nearest = nearest_profile(environment)
    models: dict[tuple[MeasuredSpeeds | None, int], CostModel] = {}
    scored = []
    for call in timed_calls(path):
        if not call.held_out or call.seconds < LONG_ENOUGH:
            continue
        key = None if calibrated is not None else call.speeds, call.threads
        if key not in models:
            speeds = beside(nearest, call.speeds, call.threads)
            estimate = cpu_from_speeds(nearest, kind_of(environment), speeds, call.threads)
            models[key] = CostModel(estimate if calibrated is None else calibrated.fit("cpu", call.threads))
        (price,), (sigma,), _ = models[key].price_works([call.work])
        spread = math.exp(Z90 * math.hypot(sigma, models[key].fit.interval.get("base", 0.0)))
        scored.append(Scored(call, price, call.seconds, price / spread, price * spread))
    return scored


def print_scores(scored: Sequence[Scored]) -> None:
    """A table, and the ops that are furthest off."""
    groups = {"all": scored, **group_by(scored, attrgetter("threads"))}
    show(tables({"calls": groups}, ("number", *ERRORS), errors), sys.stdout)
    by_op = group_by(scored, attrgetter("op"))
    ratios = {op: statistics.median(call.predicted / call.measured for call in some) for op, some in by_op.items()}
    print("furthest off (predicted / measured):")
    for op in sorted(ratios, key=lambda op: -abs(math.log(ratios[op])))[:30]:
        print(f"  {op:40s} {ratios[op]:6.2f}  {len(by_op[op])} calls")


def try_ops(names: Sequence[str]) -> None:
    """Time and price each op. Raises NameError, SyntaxError or ValueError for what is none, or a wrong row."""
    for op in table():
        if op.family and op.family not in FAMILIES:
            raise ValueError(f"ops.csv: {op.op!r} is of no family {op.family!r}; there are {', '.join(FAMILIES)}")
    for name in names:
        print(f"\n{name}")
        rows = list(_sizes_of_named(name))
        if rows:
            _show(rows)
        else:
            print("  no step took 0.15 to 30 ms: give a call of other shapes")


def _sizes_of_named(name: str) -> Iterator[dict[str, Any]]:
    """A line for each size and number of threads, as records of single ops have them."""
    if "(" in name:
        yield from sizes_of_call(name, parsed(name))
        return
    infos = {op_database.name_of(info): info for info in op_database.op_db}
    if name not in infos:
        close = ", ".join(difflib.get_close_matches(name, infos)) or "none"
        raise ValueError(f"torch's database has no op {name!r} (close: {close}); or write 'torch.sinc(x) of 512x512'")
    yield from (row for row in sizes_of(infos[name]) if "calls" in row)


def _show(rows: Sequence[dict[str, Any]]) -> None:
    environment = machine.fingerprint()
    head = [{"name": "", "environment": environment}, {"name": "", "speeds": vars(machine.measure_speeds())}]
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "ops.jsonl"
        record.write_text("\n".join(map(json.dumps, [*head, *rows])), encoding="utf-8")
        calls = list(timed_calls(record))
    nearest = nearest_profile(environment)
    whole = sum(call.seconds * call.count for call in calls)
    for op, some in group_by(calls, lambda call: call.call.op).items():
        if sum(call.seconds * call.count for call in some) >= SHOWN * whole:
            _show_op(op, sorted(some, key=attrgetter("threads")), nearest)


def _show_op(name: str, calls: Sequence[TimedCall], nearest: Profile) -> None:
    op = calls[0].work.row
    print(f"  {name}: {_described(op)}")
    ratios: list[float] = []
    for call in calls:
        speeds = beside(nearest, call.speeds, call.threads)
        device = cpu_from_speeds(nearest, kind_of(machine.fingerprint()), speeds, call.threads)
        (seconds,), _, (source,) = CostModel(device).price_works([call.work])
        ratios.append(seconds / call.seconds)
        shapes = ", ".join("x".join(map(str, t.shape)) or "number" for t in call.call.inputs)
        does = counted(call.call, call.work.row, call.work.shape, call.work.flops)
        amounts = f"  {does.units:.6g} units, {does.starts:.6g} starts" if does.op.units else ""
        print(
            f"    {shapes[:40]:40} {format_count(call.threads, 'thread'):9}  measured {format_seconds(call.seconds):>8}"
            f"  predicted {format_seconds(seconds):>8}  ({ratios[-1]:.2f}x, {source}){amounts}"
        )
    print(f"    predicted / measured: {statistics.median(ratios):.2f} in the median")
    on_gpu = device_model(GPU).price([call.work for call in calls])
    print(f"    on an {GPU}: {format_seconds(min(on_gpu[0]))} to {format_seconds(max(on_gpu[0]))} ({on_gpu[2][0]})")
    if op.kind != COUNTED:
        print(f"    {_cycles(op, [call for call in calls if call.threads == 1], nearest)}")


def _described(op: Op) -> str:
    if op is NO_ROW:
        return "no row, so its price is a guess by its bytes: add one to placer/pricing/ops.csv (docs/dev/new-op.md)"
    shared = "shared among cores" if op.shared else "on one core"
    return f"row {op.op!r}, family {op.family or 'by its operands'}, kind {op.kind or 'none'}, {shared}"


def _cycles(op: Op, calls: Sequence[TimedCall], nearest: Profile) -> str:
    """What the calls on one thread tell of an op's cycles: those on several wait for other programs too."""
    samples = Samples(*np.array([sample_of(call, beside(nearest, call.speeds, 1)) for call in calls]).T)
    if op is NO_ROW:  # as most ops of one kernel would have them
        elements = [float(max(t.numel for t in (*call.call.inputs, *call.call.outputs))) for call in calls]
        samples = samples._replace(units=np.array(elements))
    fitted = fit_one(samples)
    if fitted is None:
        return "these calls tell no cycles: they are too few or too small"
    if fitted.each == 0.0 and fitted.begun == 0.0:
        return "memory or the op's start sets the time of these calls: leave cycles empty"
    units = " for each of numel units" if op is NO_ROW else ""
    has = "" if op is NO_ROW else f"; the table has {op.cycles:g} and {op.start_cycles:g}"
    return f"calls on one thread tell cycles {fitted.each:.3g} and start_cycles {fitted.begun:.3g}{units}{has}"


def main(arguments: Sequence[str]) -> int:
    """Run one of the commands; returns 0, or 2 where an argument is none or a row of the table is wrong."""
    command, *rest = arguments or ("",)
    try:
        if command == "try" and rest:
            try_ops(rest)
        elif command == "measure" and rest:
            measure(Path(rest[0]), float(rest[1]) if len(rest) > 1 else 200.0)
        elif command == "score" and rest:
            print_scores(score_record(Path(rest[0]), load(rest[1]) if len(rest) > 1 else None))
        else:
            print(__doc__, file=sys.stderr)
            return 2
    except NameError as error:
        print(f"{error}: a call is of operands x and y, whose shapes stand after ' of '", file=sys.stderr)
        return 2
    except (SyntaxError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main(sys.argv[1:]))

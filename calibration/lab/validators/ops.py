"""Times ops on this CPU, and shows beside it what they are predicted to take: for whoever adds or changes a row.

    python -m placer.calibration.lab.validators.ops try OP...
    python -m placer.calibration.lab.validators.ops score FILE [PROFILE]

An OP is a call of operands x and y and their shapes: ``'torch.sinc(x) of 512x512'``. It takes some seconds. What a GPU
of the catalog takes is predicted, not measured. ``score`` prices the calls of a record of single ops: of every other
size, which the table was not fitted to.
"""

from __future__ import annotations

import math
import re
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from placer import machine
from placer.calibration.benchmarks.probe import Apply, step_of
from placer.calibration.lab.op_record import TimedCall, distinct, read, timed_calls
from placer.calibration.lab.validators.rows import OP_ERRORS, Priced, op_errors, tables
from placer.calibration.measuring.in_place import time_step
from placer.calibration.measuring.step import Step
from placer.calibration.measuring.timing import LARGE_BLOCK
from placer.calibration.validation.compare import group_by
from placer.calibration.validation.table import show
from placer.decision import running_with
from placer.errors import PlacerError, first_line
from placer.machine import MeasuredSpeeds
from placer.pricing import (
    FAMILIES,
    Z90,
    Context,
    CostModel,
    CpuSpeeds,
    counted,
    cpu_from_speeds,
    device_model,
    nearest_profile,
)
from placer.pricing.ops import COUNTED, NO_ROW, Op, evaluate, table
from placer.pricing.physics import STARTING, cores_of
from placer.pricing.speeds import beside
from placer.profile import Profile, kind_of, load
from placer.tracing import trace_here
from placer.units import format_count, format_seconds

#: Seconds of a step that is timed, and of its timing.
SHORTEST, LONGEST, SHARE = 1.2e-4, 0.03, 0.02
#: Factors of a call's shapes, and the smallest dimension that grows by them.
TIMES, LEAST_SCALED = (1, 2, 3, 4), 16
#: What a call may use besides its operands.
NAMES = {"torch": torch, "F": F}
#: A call, and the shapes of one or two operands behind it.
CALL = re.compile(r"(.+) of (\d+(?:x\d+)*(?:, \d+(?:x\d+)*)?)")
OF_TWO = "torch.add(x, y) of 512x512, 512"
#: Seconds from which a call of a record counts.
LONG_ENOUGH = 1e-4
#: Share of an op's time from which on a call is part of what was asked for, not of what the sample does around it.
SHOWN = 0.05
#: Cycles that are tried: for each unit, and for each start, of which an op may have thousands.
EACH = np.array([0.0, *np.exp(np.arange(np.log(0.002), np.log(3e5), 0.12))])
BEGUN = np.array([0.0, *np.exp(np.arange(np.log(10.0), np.log(2e4), 0.5))])
#: Seconds from which on a call counts in full, and the weight of shorter ones.
FULL, SHORT = 1e-4, 0.15
#: Calls tell what a unit takes where they are of so many, or where units differ by such a factor: else what is seen is
#: the call, or grows with a value. Of starts, which are few, calls tell only where they differ.
MANY, VARIED = 1000.0, 2.0
#: A GPU whose price is shown too: nothing is measured on it.
GPU = "H100"


class Call(NamedTuple):
    """A function of operands ``x`` and ``y``, and their shapes."""

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]


def parsed(text: str) -> Call:
    """The call that a text says. Raises ValueError or SyntaxError of one that it does not understand.

    So does the function, of a name that is none, and of a call that takes other arguments.
    """
    written = CALL.fullmatch(text)
    if written is None:
        raise ValueError(
            f"{text!r} is no call with shapes: write it as 'torch.sinh(x) of 512x512', or for x and y '{OF_TWO}'"
        )
    code = compile(written[1], "OP", "eval")

    def function(*operands: Tensor) -> Any:
        try:
            return eval(code, {**NAMES, **dict(zip("xy", operands, strict=False))})  # noqa: S307  the caller's own
        except (AttributeError, NameError, TypeError) as error:
            raise ValueError(
                f"{text!r} does not run ({first_line(error)}): a call is of operands x and y, whose shapes stand after "
                f"' of ', and of functions that torch, F (torch.nn.functional) and torch.ops.aten have"
            ) from error

    return Call(function, tuple(tuple(map(int, shape.split("x"))) for shape in written[2].split(", ")))


def _scaled(shape: Sequence[int], times: int) -> list[int]:
    return [n * times if n >= LEAST_SCALED else n for n in shape]


def timed_sizes(text: str, speeds: MeasuredSpeeds) -> Iterator[TimedCall]:
    """The op calls of each size of a call, with all threads and with one; of sizes that take too long or short none."""
    call = parsed(text)
    torch.empty(LARGE_BLOCK, dtype=torch.uint8)  # as calibration does
    for number, times in enumerate(TIMES):
        operands = tuple(torch.randn(_scaled(shape, times)) for shape in call.shapes)
        try:
            yield from _timed(call.function, operands, number, speeds)
        except (RuntimeError, PlacerError):  # a function that is made for its own shapes alone
            return


def _timed(
    function: Callable[..., Any], operands: tuple[Tensor, ...], number: int, speeds: MeasuredSpeeds
) -> Iterator[TimedCall]:
    workload = step_of(Apply(function), operands)
    step = Step(workload, "cpu", None, copies_out=False)
    step.prepare()
    with running_with(1):  # several wait for each other on a busy machine
        step()
        start = time.perf_counter()
        step()
        seconds = time.perf_counter() - start
    if not SHORTEST <= seconds <= LONGEST:
        return
    trace = trace_here(workload)
    for threads in sorted({torch.get_num_threads(), 1}, reverse=True):
        with running_with(threads):
            step()
            timing = time_step(step, trace, seconds=SHARE)
        calls = [(op.call, op.host_seconds) for op in timing.ops if not op.call.view or op.call.in_place]
        yield from distinct(calls, number, threads, Context.of(trace), speeds)


@dataclass(frozen=True)
class Scored(Priced):
    """A call of a record beside its price."""

    timed: TimedCall

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
        scored.append(Scored(call.seconds, price, price / spread, price * spread, call))
    return scored


def print_scores(scored: Sequence[Scored]) -> None:
    """A table, and the ops that are furthest off."""
    groups = {"all": scored, **group_by(scored, attrgetter("threads"))}
    show(tables({"calls": groups}, ("number", *OP_ERRORS), op_errors), sys.stdout)
    by_op = group_by(scored, attrgetter("op"))
    ratios = {}
    for op, calls in by_op.items():
        ratios[op] = statistics.median(call.predicted / call.measured for call in calls)
    print("furthest off (predicted / measured):")
    for op in sorted(ratios, key=lambda op: -abs(math.log(ratios[op])))[:30]:
        print(f"  {op:40s} {ratios[op]:6.2f}  {len(by_op[op])} calls")


def try_ops(names: Sequence[str]) -> None:
    """Time and price each op. Raises SyntaxError or ValueError for what is none, or a wrong row."""
    for op in table():
        if op.family and op.family not in FAMILIES:
            raise ValueError(f"ops.csv: {op.op!r} is of no family {op.family!r}; there are {', '.join(FAMILIES)}")
    for name in names:
        print(f"\n{name}")
        calls = list(timed_sizes(name, machine.measure_speeds()))
        if calls:
            _show(calls)
        else:
            print("  no step took 0.15 to 30 ms: give a call of other shapes")


def _show(calls: Sequence[TimedCall]) -> None:
    nearest = nearest_profile(machine.fingerprint())
    whole = sum(call.seconds * call.count for call in calls)
    for op, some in group_by(calls, attrgetter("call.op")).items():
        if sum(call.seconds * call.count for call in some) >= SHOWN * whole:
            _show_op(op, sorted(some, key=attrgetter("threads")), nearest)


def _show_op(name: str, calls: Sequence[TimedCall], nearest: Profile) -> None:
    op = calls[0].work.row
    print(f"  {name}: {_described(op)}")
    for call in calls:
        _check_formulas(call)
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


def _check_formulas(timed: TimedCall) -> None:
    """Raises ValueError, with the formula, where one of the op's row does not fit a call: it is priced without then."""
    work = timed.work
    if work.effort is None:
        does = counted(timed.call, work.row, work.shape, work.flops)
        evaluate(does.op.kernels, does.names, 1.0)
        evaluate(does.op.loads, does.names, 0.0)


def _described(op: Op) -> str:
    if op is NO_ROW:
        return "no row, so its price is a guess by its bytes: add one to placer/pricing/ops.csv (docs/dev/new-op.md)"
    shared = "shared among cores" if op.shared else "on one core"
    return f"row {op.op!r}, family {op.family or 'by its operands'}, kind {op.kind or 'none'}, {shared}"


class Samples(NamedTuple):
    """What was timed of one op, a number for each call: units, starts, cores, seconds of memory, start, and all."""

    units: NDArray[np.float64]
    starts: NDArray[np.float64]
    cores: NDArray[np.float64]
    memory: NDArray[np.float64]
    start: NDArray[np.float64]
    seconds: NDArray[np.float64]


def sample_of(timed: TimedCall, speeds: CpuSpeeds) -> tuple[float, ...]:
    """The numbers of ``Samples`` of one call."""
    work, threads = timed.work, timed.threads
    does = counted(timed.call, work.row, work.shape, work.flops)
    return (
        does.units * does.wide,
        does.starts * does.wide,
        cores_of(work, threads) if does.op.shared else 1.0,
        work.bytes / (speeds.bytes_per_second if threads > 1 else speeds.core_bytes_per_second),
        speeds.dispatch_seconds,
        timed.seconds,
    )


def fit_cycles(samples: Samples) -> tuple[float, float] | None:
    """Cycles of a core for each unit, and for each start: nearest to what was timed by the mean of |log(ratio)|.

    None where calls do not tell any.
    """
    if samples.units.max() < MANY and not _vary(samples.units):
        return None
    weights = np.where(samples.seconds >= FULL, 1.0, SHORT)
    tried: list[tuple[float, tuple[float, float]]] = []
    for begun in BEGUN if _vary(samples.starts) else BEGUN[:1]:
        cycles = EACH[:, None] * samples.units + begun * samples.starts
        priced = samples.start + np.maximum(cycles * samples.start / STARTING / samples.cores, samples.memory)
        errors = (np.abs(np.log(priced / samples.seconds)) * weights).sum(1) / weights.sum()
        best = int(errors.argmin())
        tried.append((float(errors[best]), (float(EACH[best]), float(begun))))
    return min(tried, key=lambda pair: round(pair[0], 3))[1]


def _vary(amounts_of_calls: NDArray[np.float64]) -> bool:
    return bool(amounts_of_calls.max() >= VARIED * max(amounts_of_calls.min(), 1.0))


def _cycles(op: Op, calls: Sequence[TimedCall], nearest: Profile) -> str:
    """What the calls on one thread tell of an op's cycles: those on several wait for other programs too."""
    samples = Samples(*np.array([sample_of(call, beside(nearest, call.speeds, 1)) for call in calls]).T)
    if op is NO_ROW:  # as most ops of one kernel would have them
        elements = []
        for call in calls:
            largest = max(t.numel for t in (*call.call.inputs, *call.call.outputs))
            elements.append(float(largest))
        samples = samples._replace(units=np.array(elements))
    fitted = fit_cycles(samples)
    if fitted is None:
        return "these calls tell no cycles: they are too few or too small"
    each, begun = fitted
    if each == 0.0 and begun == 0.0:
        return "memory or the op's start sets the time of these calls: leave cycles empty"
    units = " for each of numel units" if op is NO_ROW else ""
    has = "" if op is NO_ROW else f"; the table has {op.cycles:g} and {op.start_cycles:g}"
    return f"calls on one thread tell cycles {each:.3g} and start_cycles {begun:.3g}{units}{has}"


def main(arguments: Sequence[str]) -> int:
    """Run one of the commands; returns 0, or 2 where an argument is none or a row of the table is wrong."""
    command, *rest = arguments or ("",)
    try:
        if command == "try" and rest:
            try_ops(rest)
        elif command == "score" and rest:
            print_scores(score_record(Path(rest[0]), load(rest[1]) if len(rest) > 1 else None))
        else:
            print(__doc__, file=sys.stderr)
            return 2
    except (SyntaxError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main(sys.argv[1:]))

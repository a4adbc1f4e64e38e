"""Times ops on this CPU, and shows beside it what the table of ops predicts: for whoever adds or changes a row.

    python -m placer.calibration.lab.validators.try_ops OP...

An OP is a name in torch's database of ops (``nn.functional.gelu``), or a call of operands x and y and their shapes:
``'torch.sinc(x) of 512x512'``. It takes some seconds. What a GPU of the catalog takes is predicted, not measured.
"""

from __future__ import annotations

import difflib
import json
import statistics
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from placer import machine
from placer.calibration.benchmarks import op_database
from placer.calibration.lab.published.cycles import Samples, fit_one, sample_of
from placer.calibration.lab.validators.single_ops import sizes_of, sizes_of_call
from placer.calibration.measuring.op_record import TimedCall, timed_calls
from placer.calibration.measuring.typical_ops import parsed
from placer.pricing import (
    COUNTED,
    FAMILIES,
    NO_ROW,
    CostModel,
    CpuSpeeds,
    Op,
    beside,
    counted,
    cpu_from_speeds,
    device_model,
    nearest_profile,
    table,
)
from placer.profile import Profile, kind_of
from placer.units import format_count, format_seconds

#: Share of an op's time from which on a call is part of what was asked for, not of what the sample does around it.
SHOWN = 0.05
#: A GPU whose price is shown too: nothing is measured on it.
GPU = "H100"


def main(arguments: Sequence[str]) -> int:
    """Time and price each op; returns 0, or 2 where an argument is none or a row of the table is wrong."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__, file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    try:
        _check_families()
        for name in arguments:
            print(f"\n{name}")
            rows = list(_timed(name))
            if rows:
                _show(rows)
            else:
                print("  nothing ran for long enough to be timed: give a call of other shapes")
    except NameError as error:
        print(f"{error}: a call is of operands x and y, whose shapes stand after ' of '", file=sys.stderr)
        return 2
    except (SyntaxError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _check_families() -> None:
    """Raise ValueError where the table has a row of no family."""
    for op in table():
        if op.family and op.family not in FAMILIES:
            raise ValueError(f"ops.csv: {op.op!r} is of no family {op.family!r}; there are {', '.join(FAMILIES)}")


def _timed(name: str) -> Iterator[dict[str, Any]]:
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
    for op in dict.fromkeys(call.call.op for call in calls):
        own = [call for call in calls if call.call.op == op]
        if sum(call.seconds * call.count for call in own) >= SHOWN * whole:
            _show_op(op, sorted(own, key=lambda call: call.threads), nearest)


def _show_op(name: str, calls: Sequence[TimedCall], nearest: Profile) -> None:
    op = calls[0].work.row
    print(f"  {name}: {_said(op)}")
    ratios: list[float] = []
    for call in calls:
        seconds, source = _priced(call, beside(nearest, call.speeds, call.threads), nearest)
        ratios.append(seconds / call.seconds)
        shapes = ", ".join("x".join(map(str, t.shape)) or "number" for t in call.call.inputs)
        print(
            f"    {shapes[:40]:40} {format_count(call.threads, 'thread'):9}  measured {format_seconds(call.seconds):>8}"
            f"  predicted {format_seconds(seconds):>8}  ({ratios[-1]:.2f}x, {source}){_amounts(call)}"
        )
    print(f"    predicted / measured: {statistics.median(ratios):.2f} in the median")
    on_gpu = device_model(GPU).price([call.work for call in calls])
    print(f"    on an {GPU}: {format_seconds(min(on_gpu[0]))} to {format_seconds(max(on_gpu[0]))} ({on_gpu[2][0]})")
    if op.kind != COUNTED:
        print(f"    {_told(op, [call for call in calls if call.threads == 1], nearest)}")


def _said(op: Op) -> str:
    if op is NO_ROW:
        return "no row, so its price is a guess by its bytes: add one to placer/pricing/ops.csv (docs/dev/new-op.md)"
    shared = "shared among cores" if op.shared else "on one core"
    return f"row {op.op!r}, family {op.family or 'by its operands'}, kind {op.kind or 'none'}, {shared}"


def _amounts(call: TimedCall) -> str:
    """What the row's formulas come to; raises ValueError where one is wrong."""
    does = counted(call.call, call.work.row, call.work.shape, call.work.flops)
    return f"  {does.units:.6g} units, {does.starts:.6g} starts" if does.op.units else ""


def _priced(call: TimedCall, speeds: CpuSpeeds, nearest: Profile) -> tuple[float, str]:
    """Seconds and source of a call on a CPU of these speeds, as an estimate without a calibration has them."""
    device = cpu_from_speeds(nearest, kind_of(machine.fingerprint()), speeds, call.threads)
    (seconds,), _, (source,) = CostModel(device).price_works([call.work])
    return seconds, source


def _told(op: Op, calls: Sequence[TimedCall], nearest: Profile) -> str:
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


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main(sys.argv[1:]))

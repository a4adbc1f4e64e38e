"""Times ops on this CPU, and shows beside it what the table of ops predicts: for whoever adds or changes a row.

    python -m placer.calibration.validation.try_ops OP...

An OP is a name in torch's database of ops (``nn.functional.gelu``), or a call of operands x and y and their shapes:
``'torch.sinc(x) of 512x512'``. It takes some seconds.
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
from placer.calibration.fitting.cycles import Samples, fit_one, sample_of
from placer.calibration.measuring.op_record import TimedCall, timed_calls
from placer.calibration.measuring.typical_ops import parsed
from placer.calibration.validation.single_ops import sizes_of, sizes_of_call
from placer.pricing import CostModel, CpuSpeeds, beside, nearest_profile, on_other_cpu
from placer.pricing.ops import COUNTED, Op
from placer.profile import Profile
from placer.units import format_seconds

#: Share of an op's time from which on a call is part of what was asked for, not of what the sample does around it.
SHOWN = 0.05


def main(names: Sequence[str]) -> int:
    """Time and price each op; returns 0, or 2 where a name is none."""
    if not names:
        print(__doc__, file=sys.stderr)
        return 2
    for name in names:
        try:
            rows = list(_timed(name))
        except (ValueError, SyntaxError) as error:
            print(error, file=sys.stderr)
            return 2
        print(f"\n{name}")
        if not rows:
            print("  nothing ran long enough, or at all: give a call of larger shapes")
            continue
        _show(rows)
    return 0


def _timed(name: str) -> Iterator[dict[str, Any]]:
    """A line for each size and number of threads, as records of single ops have them."""
    if " of " in name:
        yield from sizes_of_call(name, parsed(name))
        return
    infos = {op_database.name_of(info): info for info in op_database.op_db}
    if name not in infos:
        close = ", ".join(difflib.get_close_matches(name, infos)) or "none"
        raise ValueError(f"torch's database has no op {name!r} (close: {close}); or write 'torch.sinc(x) of 512x512'")
    yield from (row for row in sizes_of(infos[name]) if "calls" in row)


def _show(rows: Sequence[dict[str, Any]]) -> None:
    environment = machine.fingerprint()
    speeds = vars(machine.measure_speeds())
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "ops.jsonl"
        lines = [{"name": "", "environment": environment}, {"name": "", "speeds": speeds}, *rows]
        record.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
        calls = list(timed_calls(record))
    nearest = nearest_profile(environment)
    whole = sum(call.seconds * call.count for call in calls)
    for op in dict.fromkeys(call.call.op for call in calls):
        own = [call for call in calls if call.call.op == op]
        if sum(call.seconds * call.count for call in own) >= SHOWN * whole:
            _show_op(op, own, nearest)


def _show_op(name: str, calls: Sequence[TimedCall], nearest: Profile) -> None:
    op = calls[0].work.row
    print(f"  {name}: {_said(op)}")
    ratios, samples = [], []
    for call in sorted(calls, key=lambda call: call.threads):
        speeds = beside(nearest, call.speeds, call.threads)
        seconds, source = _priced(call, speeds, nearest)
        ratios.append(seconds / call.seconds)
        samples.append(sample_of(call, speeds))
        shapes = ", ".join("x".join(map(str, t.shape)) or "number" for t in call.call.inputs)
        print(
            f"    {shapes[:44]:44} {call.threads:2} thread{' ' if call.threads == 1 else 's'}"
            f"  measured {format_seconds(call.seconds):>8}  predicted {format_seconds(seconds):>8}"
            f"  ({ratios[-1]:.2f}x, {source})"
        )
    print(f"    predicted / measured: {statistics.median(ratios):.2f} in the median")
    if op.kind and op.kind != COUNTED:
        fitted = fit_one(Samples(*np.array(samples).T))
        told = "no cycles" if fitted is None else f"cycles {fitted.each:.3g} and start_cycles {fitted.begun:.3g}"
        print(f"    these calls tell {told}; the table has {op.cycles:g} and {op.start_cycles:g}")


def _said(op: Op) -> str:
    if not op.op:
        return "no row, so its price is a guess by its bytes: add one to placer/pricing/ops.csv"
    shared = "shared among cores" if op.shared else "on one core"
    return f"row {op.op!r}, family {op.family or 'by its operands'}, kind {op.kind or 'none'}, {shared}"


def _priced(call: TimedCall, speeds: CpuSpeeds, nearest: Profile) -> tuple[float, str]:
    """Seconds and source of a call on a CPU of these speeds, as an estimate without a calibration has them."""
    profile = on_other_cpu(nearest, speeds, threads=call.threads)
    (seconds,), _, (source,) = CostModel(profile.fit("cpu", call.threads)).price_works([call.work])
    return seconds, source


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main(sys.argv[1:]))

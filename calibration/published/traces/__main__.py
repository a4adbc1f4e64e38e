"""``python -m placer.calibration.published.traces FILE...``: what profiler traces show, and what the clocks replay."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from placer.calibration.published.traces.chrome import TraceFileError, read_trace
from placer.calibration.published.traces.summary import TraceSummary, summarise

_USAGE = """usage: python -m placer.calibration.published.traces FILE...
FILE is a trace that torch.profiler.profile(...).export_chrome_trace(FILE) wrote (.json or .json.gz)

of ops           share of the time of kernels that ops launched (an optimizer's update is one)
launched before  kernels whose launch lies before the trace: they have no op
host alone       the step if the host never waited for the device
missing          share of the step in which work waits in the device's queue and nothing runs: it is not in the trace
ratio            step replayed on the two clocks of pricing over the step shown"""
#: Columns, with the side that their values keep to.
_COLUMNS = (
    ("trace", "left"), ("GPU", "left"), ("software", "left"), ("steps", "right"), ("kernels", "right"),
    ("of ops", "right"), ("backward", "right"), ("launched before", "right"), ("step shown", "right"),
    ("host alone", "right"), ("missing", "right"), ("replayed", "right"), ("ratio", "right"),
)  # fmt: skip


def main(paths: Sequence[str]) -> int:
    """Print a table, a row for each file; returns the exit code."""
    if not paths or any(path in ("-h", "--help") for path in paths):
        print(_USAGE, file=sys.stdout if paths else sys.stderr)
        return 0 if paths else 2
    try:
        found = [summarise(read_trace(Path(path))) for path in paths]
    except TraceFileError as error:
        print(error, file=sys.stderr)
        return 1
    Console(width=None if sys.stdout.isatty() else 200).print(_table(found))
    ratios = [s.replay.ratio for s in found if s.replay is not None and s.steps > 1]
    if ratios:
        off = statistics.median(abs(ratio - 1.0) for ratio in ratios)
        print(f"\n{len(ratios)} with two steps and more: replayed within {off:.1%} in the median")
    return 0


def _table(found: Sequence[TraceSummary]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, side in _COLUMNS:
        table.add_column(name, justify="right" if side == "right" else "left")
    for one in found:
        table.add_row(*_row(one))
    return table


def _row(one: TraceSummary) -> list[str]:
    row = [
        one.name, one.gpu or "-", one.software or "-", str(one.steps or "-"), _ms(one.kernel_seconds),
        f"{one.assigned:.1%}", f"{one.backward:.0%}", _ms(one.before_seconds) if one.before_seconds else "-",
    ]  # fmt: skip
    if one.replay is None:
        return [*row, "-", "-", "-", "-", "-"]
    times = one.replay
    missing = f"{times.starved / times.shown:.0%}"
    return [*row, _ms(times.shown), _ms(times.host), missing, _ms(times.replayed), f"{times.ratio:.2f}"]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 0.1 else f"{seconds * 1e3:.0f} ms"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

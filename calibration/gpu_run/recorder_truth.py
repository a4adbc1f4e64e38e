"""What torch's recorder shows of a chain of known kernels, session after session, and what it costs the process.

Everything goes to ``recorder.jsonl``. What a process does that never used the recorder comes first.
"""

from __future__ import annotations

from collections.abc import Callable

from placer.calibration.gpu_run import clock_ramp, kernel_times, sessions
from placer.calibration.gpu_run.job import Job
from placer.calibration.gpu_run.lines import Lines
from placer.calibration.measuring.health import cause
from placer.calibration.measuring.recording import kind_shown
from placer.calibration.measuring.watchdog import time_limit

#: In this order, with the share of the time of each. What may break the recorder comes last.
PIECES: tuple[tuple[Callable[[Job, Lines], None], float], ...] = (
    (sessions.run, 0.5), (kernel_times.run, 0.2), (sessions.run_empty, 0.1),
)  # fmt: skip

#: Seconds more that a piece may take: it looks at the time between two measurements only.
SLACK = 2.0


def run(job: Job) -> None:
    """The recorder's pieces where it shows this device's kernels; how the clock comes up in any case."""
    lines = Lines(job.folder / "recorder.jsonl")
    shown = kind_shown() == job.kind
    if not shown:
        lines.fail({"what": "recorder"}, f"torch's recorder shows no kernels of {job.kind} here")
    whole = job.left
    pieces = PIECES if shown else ()
    for piece, share in (*pieces, (clock_ramp.run, 0.2)):
        limited = job.within(share * whole)
        try:
            with time_limit(limited.left + SLACK, piece.__module__):
                piece(limited, lines)
        except Exception as error:  # noqa: BLE001  one piece that fails must not cost the others
            lines.fail({"what": piece.__module__}, cause(error))

"""Rates that no profile has, in ``rates.jsonl``: products, convolutions, copies, updates, memory traffic, attention."""

from __future__ import annotations

from collections.abc import Callable

from placer.calibration.gpu_run import attention, convolutions, copies, products, traffic, updates
from placer.calibration.gpu_run.bursts import Rates
from placer.calibration.gpu_run.job import Job
from placer.calibration.gpu_run.lines import Lines
from placer.calibration.measuring.health import BrokenDeviceError, cause
from placer.calibration.measuring.watchdog import time_limit

#: The most valuable first; each gets an equal share of the time that is left.
FAMILIES: tuple[Callable[[Rates], None], ...] = (
    products.measure, convolutions.measure, copies.measure, updates.measure, traffic.measure, attention.measure,
)  # fmt: skip

#: Seconds more that a family may take: it looks at the time between two questions only.
SLACK = 2.0


def run(job: Job) -> None:
    """Append a line for each rate. Raises BrokenDeviceError where the device runs nothing any more."""
    lines = Lines(job.folder / "rates.jsonl")
    for position, measure in enumerate(FAMILIES):
        share = job.within(job.left / (len(FAMILIES) - position))
        try:
            with time_limit(share.left + SLACK, measure.__module__):
                measure(Rates(share, lines))
        except BrokenDeviceError:
            raise
        except Exception as error:  # noqa: BLE001  a family that fails as a whole must not cost the others
            lines.fail({"what": measure.__module__}, cause(error))

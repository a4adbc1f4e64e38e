"""What a report of ``placer run`` answers. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Version of a report's JSON; keys may be added to it.
SCHEMA = 1


@dataclass(frozen=True)
class ReportOptions:
    """What the report answers.

    ``profile`` prices (None: this machine's), ``what_if`` names other GPUs to compare with (none: the usual ones, where
    there is only a CPU). ``explain`` adds every explanation. ``steps_per_epoch`` (batches) and ``epochs`` say how long
    the run is that is asked about, ``price`` (dollars per hour) and ``watts`` what a device costs.
    """

    profile: Any = None
    what_if: Sequence[str] = ()
    explain: bool = False
    steps_per_epoch: int | None = None
    epochs: int | None = None
    price: Mapping[str, float] | None = None
    watts: Mapping[str, float] | None = None

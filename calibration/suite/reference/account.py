"""What a published account of "CPU or GPU?" tried and reported, as an entry of the suite."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from placer.calibration.suite.accounts import Host, hosts
from placer.calibration.suite.entry import Entry, Suite

#: What an account says of a case: which device finished first, or that neither did by much.
Outcome = Literal["CPU", "GPU", "tie"]


@dataclass(frozen=True)
class Case:
    """One thing the account tried: a batch size on ``rows`` rows of data, and what it reported, hardware included.

    ``rows`` is None where there is no data set to go through: then the run is a long one. ``claim`` holds the outcomes
    that agree with the report; none where it compares no devices. ``doubt`` says why a claim is not a clear one.
    """

    batch: int
    rows: int | None
    reported: str
    claim: tuple[Outcome, ...] = ()
    doubt: str = ""


@dataclass(frozen=True)
class Reference(Entry):
    """A variant of a reference system. ``system`` is the account, ``variant`` what of it this is.

    ``batches`` are those of ``cases`` (see ``batches_of``); a case with the same batch and other rows is the same step,
    run another number of times. ``gpu`` is the account's card, by its name in the catalog, and ``cpu`` the CPU beside
    it. No account names its CPU, and ``names_gpu`` is False where it names no card either: what a free notebook of the
    day had stands in, a Tesla K80 and one core of a Xeon.
    """

    suites: frozenset[Suite] = frozenset({"reference", "full"})
    system: str = ""
    variant: str = ""
    cases: tuple[Case, ...] = ()
    #: How often the account went through its data.
    epochs: int = 1
    gpu: str = "Tesla K80"
    names_gpu: bool = False
    cpu: Host = hosts.COLAB

    def steps(self, case: Case) -> int | None:
        """How many steps the account's run takes; None for a long run."""
        return None if case.rows is None else self.epochs * self.steps_per_epoch(case)

    def steps_per_epoch(self, case: Case) -> int:
        """How many steps go through the data once; 1 where there is no data set."""
        return 1 if case.rows is None else math.ceil(case.rows / case.batch)


def batches_of(cases: Sequence[Case]) -> tuple[int, ...]:
    """The batch sizes of the cases, ascending."""
    return tuple(sorted({case.batch for case in cases}))

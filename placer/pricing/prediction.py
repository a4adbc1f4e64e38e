"""The prediction for one device, and the priced ops it is made of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

from placer.tracing import Trace

if TYPE_CHECKING:
    from placer.pricing.shapes.shape import Work
    from placer.profile import Device

#: What an op's price rests on, from the best to the weakest: samples around it, taken on this device; rows that others
#: published of this device, op and dtype, with sizes around it; distant samples; rows of other GPUs, dtypes or sizes;
#: what the op does by the table of ops, and the data sheet; or no more than its bytes.
Source = Literal["calibrated", "published", "extrapolated", "learnt", "physics", "guess"]
#: What the numbers of a device rest on: measurements taken on it by placer, others' published measurements of its
#: model, or its data sheet.
Provenance = Literal["calibrated", "published", "data sheet"]
#: The sources from the best to the weakest.
SOURCES: tuple[Source, ...] = get_args(Source)
#: Standard deviation of log(seconds) of a price without any rows. A guess is within a factor of 3 at 90 %. Of the other
#: sources, networks tell.
SIGMA: dict[Source, float] = {"physics": 0.55, "guess": math.log(3.0) / 1.645}
#: What takes most of a step: starting ops (Python, the framework, launching kernels), copying batches, arithmetic,
#: memory traffic, waiting for the device, or for the loader (see ``physics.step_bounds``).
Bound = Literal["launches", "transfer", "arithmetic", "memory", "waits", "loader"]
#: The component that a measured step takes beyond the predicted ones; negative where the step is shorter.
NOT_PREDICTED = "not predicted"


@dataclass(frozen=True)
class Compilation:
    """What ``torch.compile`` adds to a step.

    ``loading`` the compiler takes seconds once a process, compiling this step ``seconds`` more. ``doubt`` is a standard
    deviation of log(step).
    """

    loading: float
    seconds: float
    doubt: float


@dataclass(frozen=True)
class PricedTrace:
    """A price for every call of a trace on one device, in the order of ``trace.calls``.

    ``seconds`` is the time that the op's kernels take on the device (on the CPU: the op itself, as part of a step).
    ``host_seconds`` is the time that the host needs to issue it (accelerators only, 0 on the CPU). ``sigma`` is the
    standard deviation of log(seconds). ``kernels`` is the number of kernels of each call, the pauses between which are
    in ``seconds`` (accelerators only; empty: one each).
    """

    trace: Trace
    device: str
    threads: int
    families: tuple[str, ...]
    seconds: tuple[float, ...]
    host_seconds: tuple[float, ...]
    sigma: tuple[float, ...]
    sources: tuple[Source, ...]
    #: How often the framework's own code runs in the step (see ``framework.framework_counts``).
    counts: Mapping[str, float] = field(default_factory=dict)
    #: The fit that the prices come from, and the work of every call. An explanation derives from them what limits an
    #: op. None and empty for prices made by hand.
    fit: Device | None = field(default=None, repr=False, compare=False)
    works: tuple[Work, ...] = field(default=(), repr=False, compare=False)
    kernels: tuple[float, ...] = ()
    #: Of a step that is priced as compiled; None of an eager one.
    compilation: Compilation | None = None


@dataclass(frozen=True)
class Cost:
    """What a step, or a job of several, takes on one device. Times in seconds, sizes in bytes.

    ``low`` and ``high`` bound a 90 % interval. ``components`` add up to ``step_seconds`` (compute, dispatch, copy,
    sync, loading, ...); the priced ops add up to ``components["compute"]``. ``sources`` are the shares of the ops' time
    by what their prices rest on (see ``Source``), and ``coverage`` is that of ops measured in that range: calibrated,
    or, of a device that was not calibrated, published. ``provenance`` says which of the two it is, or that there is
    nothing but a data sheet. ``peak_memory_bytes`` is the most that a step has in use at one time, weights and
    optimizer state included; ``available_memory_bytes`` what it could have: free memory, and what the workload holds on
    the device already (None: not known). ``fits`` compares the two. ``total_seconds`` is ``one_time_seconds + steps *
    step_seconds`` (None for a long run). ``one_time`` are the parts of ``one_time_seconds``: creating the ``context``,
    loading ``libraries``, ``first_calls`` and moving the weights; ``assumed`` names those that nobody measured on
    this device. ``bounded_by`` says what takes most of a step; None for prices made by hand. ``watts`` is the electric
    power of CPU and accelerator meanwhile, an estimate (see ``predict.step_watts``) where the caller gave none, and
    ``dollars_per_hour`` the price that the caller gave; None where not known.
    """

    device: str
    threads: int
    step_seconds: float
    low: float
    high: float
    one_time_seconds: float
    total_seconds: float | None
    components: Mapping[str, float]
    peak_memory_bytes: int
    fits: bool
    coverage: float
    provenance: Provenance = "calibrated"
    available_memory_bytes: int | None = None
    one_time: Mapping[str, float] = field(default_factory=dict)
    bounded_by: Bound | None = None
    watts: float | None = None
    dollars_per_hour: float | None = None
    sources: Mapping[str, float] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """What counts: of all steps where it is known how many there are, else of one."""
        return self.step_seconds if self.total_seconds is None else self.total_seconds

    @property
    def between(self) -> tuple[float, float]:
        """A 90 % interval of ``seconds``. What is paid once counts as known."""
        if self.total_seconds is None or not self.step_seconds:
            return self.low, self.high
        steps = (self.total_seconds - self.one_time_seconds) / self.step_seconds
        return self.one_time_seconds + steps * self.low, self.one_time_seconds + steps * self.high

    @property
    def dollars(self) -> float | None:
        """Of what counts; None without a price."""
        return None if self.dollars_per_hour is None else self.dollars_per_hour * self.seconds / 3600.0

    @property
    def joules(self) -> float | None:
        """Of what counts, an estimate; None where it is not known."""
        return None if self.watts is None else self.watts * self.seconds


@dataclass(frozen=True, kw_only=True)
class Prediction(Cost):
    """What one step takes on one device, with the prices of its ops."""

    priced: PricedTrace


def backed(source: str, provenance: str) -> bool:
    """Whether a price of this source was measured, on a device of this provenance: by placer, or by others."""
    return source == ("calibrated" if provenance == "calibrated" else "published")


#: Sources and provenances, of which ``calibrated`` and ``published`` are both, from the best to the weakest.
_ORDER: tuple[str, ...] = (*SOURCES, "data sheet")
_Rank = TypeVar("_Rank", bound=str)


def weakest(ranks: Iterable[_Rank]) -> _Rank:
    """What several sources, or several provenances, rest on together."""
    return max(ranks, key=_ORDER.index)

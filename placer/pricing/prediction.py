"""What placer says about one device: the numbers of a Prediction, and of the priced ops beneath it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from placer.tracing import Trace

if TYPE_CHECKING:
    from placer.pricing.operators import Work
    from placer.profile import DeviceFit

#: Where an op's price comes from: samples around it, the nearest samples and physics, or physics alone.
Source = Literal["calibrated", "extrapolated", "floor"]
#: The component by which a measured step is longer than the predicted ones add up to; shorter, where it is negative.
NOT_PREDICTED = "not predicted"


@dataclass(frozen=True)
class PricedTrace:
    """A price for every call of a trace on one device, in the order of ``trace.calls``.

    ``seconds`` is the time the op's kernels take on the device (on the CPU: the op itself, in place in a step);
    ``host_seconds`` the time the host needs to issue it (accelerators only, 0 on the CPU); ``sigma`` the standard
    deviation of log(seconds).
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
    #: What the prices come from, and what was priced, call by call; explanations ask them what limits an op. None and
    #: nothing for prices that were made by hand.
    fit: DeviceFit | None = field(default=None, repr=False, compare=False)
    works: tuple[Work, ...] = field(default=(), repr=False, compare=False)


@dataclass(frozen=True)
class Prediction:
    """One step on one device. Times in seconds, sizes in bytes.

    ``low`` and ``high`` bound a 90 % interval. ``components`` add up to ``step_seconds`` (compute, dispatch, copy,
    sync, ...); the priced ops add up to ``components["compute"]``. ``coverage`` is the share of the predicted time
    that rests on calibrated, in-range ops. ``total_seconds`` is ``one_time_seconds + steps * step_seconds`` (None for
    a long run). ``interpolated`` tells that the step was not traced, but lies between two that were: its interval is
    wider by what that leaves open, its memory and its ops are those of the larger one (see ``between.py``).
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
    priced: PricedTrace
    interpolated: bool = False

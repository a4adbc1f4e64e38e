"""Profile -> seconds for an op on a device: a physical floor times a learnt residual.

    seconds = (latency + cost x FLOPs + cost x bytes + ...) * exp(residual)

The floor is in ``floors``, or is what the published knowledge of a GPU expects (``gpu.device_model``); the residual is
learnt from samples (``gaussian_process``). A family without samples is priced by the published knowledge alone, and
where there is none by the roofline. The source of a price says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from placer.errors import ProfileError
from placer.lazy import cached_property
from placer.pricing.describe import describe_step, different_works, foreign_family, on_accelerator
from placer.pricing.floors import PUBLISHED, floor_parts, has_physics, roofline_seconds, start_share, table_seconds
from placer.pricing.framework import framework_counts
from placer.pricing.gaussian_process import Array, Residual
from placer.pricing.many_cores import SHARED_SIGMA, cut_of, share_of, shared_seconds
from placer.pricing.ops import COUNTED
from placer.pricing.prediction import SIGMA, PricedTrace, Provenance, Source
from placer.pricing.shapes import ONE_PIECE
from placer.pricing.timeline import host_seconds, kernels_of, pause_seconds
from placer.pricing.unfolded import unfolded, unfolded_seconds
from placer.pricing.work import Work, inputs_of, known_labels
from placer.profile import DeviceFit
from placer.tracing import Trace

if TYPE_CHECKING:
    from placer.pricing.gpu.apple import AppleModel
    from placer.pricing.gpu.device_model import DeviceModel

#: Seconds, sigma of log(seconds) and source of each of some ops.
Prices: TypeAlias = tuple[list[float], list[float], list[Source]]
#: A way to price ops of a family.
Pricer: TypeAlias = "Callable[[CostModel, Sequence[Work], DeviceFit, str], Prices]"
#: Standard deviation of log(seconds) of the part of an op that is left to the floor (see ``floors.floor_parts``).
ARITHMETIC_SIGMA = 0.1
#: Rates without which there is no physical floor.
_NEEDED_RATES = ("dispatch_seconds", "flops/float32", "bytes_per_second")


class CostModel:
    """Prices op calls on one device at one thread count. Residuals are factorised once and shared by every call."""

    def __init__(self, fit: DeviceFit) -> None:
        """Raises ProfileError for a fit without a floor, or of features this version does not describe ops by."""
        lacking = [name for name in _NEEDED_RATES if not fit.rates.get(name, 0.0) > 0.0]
        lacking += [f"latency of {name}" for name, family in fit.families.items() if "latency" not in family.parameters]
        if lacking:
            raise ProfileError(
                f"the profile cannot predict on {fit.device}: it has no {', no '.join(lacking)}; run: placer calibrate"
            )
        foreign = foreign_family(fit)
        if foreign is not None:
            raise ProfileError(
                f"the profile was fitted by another version of placer (features of {foreign!r} differ): run placer "
                "calibrate, or load a profile of this version"
            )
        self.fit = fit
        built_on = {family.parameters[PUBLISHED] for family in fit.families.values() if PUBLISHED in family.parameters}
        if built_on and (self._gpu is None or built_on != {self._gpu.edition}):
            raise ProfileError(
                f"the profile was fitted on other published times of {fit.gpu or 'its GPU'} than this version of "
                "placer has: run placer calibrate"
            )

    @cached_property
    def provenance(self) -> Provenance:
        """What the prices rest on: calibration where any family was measured, else what is known of the GPU."""
        if self._gpu is None or self.fit.families:
            return "published" if self.fit.estimated else "calibrated"
        return self._gpu.provenance

    @cached_property
    def _gpu(self) -> DeviceModel | AppleModel | None:
        """The published knowledge of the fit's GPU. Imported on use: a CPU needs none."""
        if not self.fit.gpu:
            return None
        from placer.pricing.gpu.device_model import device_model

        return device_model(self.fit.gpu)

    @cached_property
    def _residuals(self) -> dict[str, Residual]:
        return {name: Residual(family) for name, family in self.fit.families.items()}

    def price(self, trace: Trace) -> PricedTrace:
        """A price for every call of ``trace``; equal calls are priced once."""
        works, order = different_works(trace)
        seconds, sigma, sources = self.price_works(works)
        issue, kernels = [0.0] * len(works), []
        if self.fit.device != "cpu":
            issue = [host_seconds(work, self.fit.framework) for work in works]
            kernels = [kernels_of(work, self.fit.framework) for work in works]
            seconds = [t + pause_seconds(n, self.fit) if t > 0.0 else t for t, n in zip(seconds, kernels, strict=True)]
        priced, host = [seconds[i] for i in order], [issue[i] for i in order]
        return PricedTrace(
            trace=trace,
            device=self.fit.device,
            threads=self.fit.threads,
            families=tuple(works[i].family for i in order),
            seconds=tuple(priced),
            host_seconds=tuple(host),
            sigma=tuple(sigma[i] for i in order),
            sources=tuple(sources[i] for i in order),
            counts=framework_counts(trace, priced if self.fit.device == "cpu" else host),
            fit=self.fit,
            works=describe_step(trace),
            kernels=tuple(kernels[i] for i in order) if kernels else (),
        )

    def price_works(self, works: Sequence[Work]) -> Prices:
        """Seconds, sigma of log(seconds) and source of each work."""
        cores, threads = self.fit.cores, self.fit.threads
        if cores is None:
            return self._price_in_groups(works, self.fit)
        cuts = [ONE_PIECE if unfolded(work, cores.rates) else cut_of(work) for work in works]
        shares = [share_of(work, min(threads, cut.pieces)) for work, cut in zip(works, cuts, strict=True)]
        one = replace(self.fit, threads=1, rates=cores.rates)
        seconds, sigma, sources = self._price_in_groups(shares, one)
        for i, (work, share) in enumerate(zip(works, shares, strict=True)):
            start = seconds[i] * start_share(share, one)
            seconds[i] = cores.pace * shared_seconds(work, cuts[i], seconds[i], start, cores, threads)
            sigma[i] = math.hypot(sigma[i], SHARED_SIGMA)
        return seconds, sigma, sources

    def _price_in_groups(self, works: Sequence[Work], fit: DeviceFit) -> Prices:
        """``price_works`` with the costs of ``fit``, whatever the cores. Ops that are priced in one way go together."""
        groups: dict[tuple[Pricer, str], list[int]] = {}
        for i, work in enumerate(works):
            groups.setdefault(self._pricer_of(work, fit), []).append(i)
        seconds, sigma = [0.0] * len(works), [0.0] * len(works)
        sources: list[Source] = ["guess"] * len(works)
        for (pricer, family), members in groups.items():
            prices = pricer(self, [works[i] for i in members], fit, family)
            for i, price, doubt, source in zip(members, *prices, strict=True):
                seconds[i], sigma[i], sources[i] = price, doubt, source
        return seconds, sigma, sources

    def _pricer_of(self, work: Work, fit: DeviceFit) -> tuple[Pricer, str]:
        """What prices an op, and the family whose ops are priced together with it; "" for those of all families."""
        on_cpu, residual = fit.device == "cpu", self._residuals.get(work.family)
        if work.family == "view" and not on_cpu:
            return CostModel._free, ""
        if residual is None and self._gpu is not None:
            return CostModel._by_published_times, ""
        if unfolded(work, fit.rates):
            return CostModel._by_unfolding, ""
        # The table of ops has what no sample of the family is of, unless the family counts what such an op does.
        counted = work.family == "view" or (work.effort is not None and work.effort.kind == COUNTED)
        if on_cpu and not counted and (residual is None or residual.op_index(known_labels(work)) < 0):
            return CostModel._by_table_of_ops, ""
        return (CostModel._by_roofline, "") if residual is None else (CostModel._by_samples, work.family)

    def _free(self, works: Sequence[Work], fit: DeviceFit, _: str) -> Prices:
        """Nothing runs on the device."""
        return [0.0] * len(works), [0.0] * len(works), [_measured(fit)] * len(works)

    def _by_published_times(self, works: Sequence[Work], _fit: DeviceFit, _: str) -> Prices:
        """What is known of the GPU from others' measurements of it, and of others."""
        assert self._gpu is not None
        return self._gpu.price(works)

    def _by_table_of_ops(self, works: Sequence[Work], fit: DeviceFit, _: str) -> Prices:
        """Cycles or memory traffic."""
        return _unmeasured(works, [table_seconds(work, fit) for work in works])

    def _by_unfolding(self, works: Sequence[Work], fit: DeviceFit, _: str) -> Prices:
        """What is known of convolutions without oneDNN."""
        return _unmeasured(works, [unfolded_seconds(work, fit.rates) for work in works])

    def _by_roofline(self, works: Sequence[Work], fit: DeviceFit, _: str) -> Prices:
        """Peak rates alone."""
        described = works if fit.device == "cpu" else list(map(on_accelerator, works))
        return _unmeasured(works, [roofline_seconds(work, fit) for work in described])

    def _by_samples(self, works: Sequence[Work], fit: DeviceFit, family: str) -> Prices:
        """A floor, times what samples of the family teach."""
        residual = self._residuals[family]
        described = works if fit.device == "cpu" else list(map(on_accelerator, works))
        x: Array = np.array([inputs_of(work) for work in described])
        ops = np.array([residual.op_index(known_labels(work)) for work in described])
        mean, variance = residual.predict(x, ops)
        covered = residual.covers(x, ops)
        parameters, usual = residual.fit.parameters, residual.fit.mean
        if PUBLISHED in parameters and self._gpu is not None:
            floors = [(floor, 1.0) for floor in self._gpu.price(described)[0]]
        else:
            floors = [floor_parts(work, fit, parameters) for work in described]
        seconds, sigma = [], []
        sources: list[Source] = []
        for number, (floor, share) in enumerate(floors):
            seconds.append(floor * math.exp(usual + share * (mean[number] - usual)))
            doubt = math.sqrt(variance[number] + residual.fit.noise)
            sigma.append(math.hypot(share * doubt, (1.0 - share) * ARITHMETIC_SIGMA))
            sources.append(_measured(fit) if covered[number] else "extrapolated")
        return seconds, sigma, sources


def _measured(fit: DeviceFit) -> Source:
    """What a price rests on that samples cover."""
    return "published" if fit.estimated else "calibrated"


def _unmeasured(works: Sequence[Work], seconds: list[float]) -> Prices:
    """Prices that no sample backs."""
    sources: list[Source] = ["physics" if has_physics(work) else "guess" for work in works]
    return seconds, [SIGMA[source] for source in sources], sources

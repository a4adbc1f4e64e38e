"""Profile -> seconds for an op on a device: a physical floor times a learnt residual.

    seconds = (latency + cost x FLOPs + cost x bytes + ...) * exp(residual)

The floor is in ``floors``, or is what the published knowledge of a GPU expects (``gpu.device_model``); the residual is
learnt from samples (``gaussian_process``). A family without samples is priced by the published knowledge alone, and
where there is none by the roofline. The source of a price says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from placer.errors import ProfileError
from placer.lazy import cached_property
from placer.pricing.describe import (
    describe_step,
    different_works,
    foreign_family,
    inputs_of,
    known_labels,
    on_accelerator,
)
from placer.pricing.floors import PUBLISHED, floor_parts, has_physics, roofline_seconds, start_share, table_seconds
from placer.pricing.framework import framework_counts
from placer.pricing.gaussian_process import Array, Residual
from placer.pricing.many_cores import SHARED_SIGMA, cut_of, share_of, shared_seconds
from placer.pricing.op_table import COUNTED
from placer.pricing.prediction import SIGMA, PricedTrace, Provenance, Source
from placer.pricing.timeline import host_seconds, kernels_of, pause_seconds
from placer.pricing.work import Work
from placer.profile import DeviceFit
from placer.tracing import Trace

if TYPE_CHECKING:
    from placer.pricing.gpu.apple import AppleModel
    from placer.pricing.gpu.device_model import DeviceModel

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

    @staticmethod
    def _by_table(work: Work, residual: Residual | None) -> bool:
        """Whether the table of ops prices an op of a CPU: none of the family's samples is of it, nor does its family
        count what it does."""
        if work.family == "view" or (residual is not None and residual.op_index(known_labels(work)) >= 0):
            return False
        return work.effort is None or work.effort.kind != COUNTED

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

    def price_works(self, works: Sequence[Work]) -> tuple[list[float], list[float], list[Source]]:
        """Seconds, sigma of log(seconds) and source of each work."""
        cores, threads = self.fit.cores, self.fit.threads
        if cores is None:
            return self._priced(works, self.fit)
        cuts = [cut_of(work) for work in works]
        shares = [share_of(work, min(threads, each.pieces)) for work, each in zip(works, cuts, strict=True)]
        one = replace(self.fit, threads=1, rates=cores.rates)
        seconds, sigma, sources = self._priced(shares, one)
        for i, (work, share) in enumerate(zip(works, shares, strict=True)):
            start = seconds[i] * start_share(share, one)
            seconds[i] = shared_seconds(work, cuts[i], seconds[i], start, cores, threads)
            sigma[i] = math.hypot(sigma[i], SHARED_SIGMA)
        return seconds, sigma, sources

    def _priced(self, works: Sequence[Work], fit: DeviceFit) -> tuple[list[float], list[float], list[Source]]:
        """The same with the costs of ``fit``, evaluated family by family."""
        sources: list[Source] = ["physics" if has_physics(work) else "guess" for work in works]
        seconds, sigma = [0.0] * len(works), [SIGMA[source] for source in sources]
        measured: Source = "published" if fit.estimated else "calibrated"
        by_family: dict[str, list[int]] = {}
        published: list[int] = []
        for i, work in enumerate(works):
            by_family.setdefault(work.family, []).append(i)
        for family, members in by_family.items():
            residual = self._residuals.get(family)
            if family == "view" and fit.device != "cpu":
                for i in members:  # nothing runs on the device
                    seconds[i], sigma[i], sources[i] = 0.0, 0.0, measured
                continue
            if residual is None and self._gpu is not None:
                published += members
                continue
            seen = {i: works[i] if fit.device == "cpu" else on_accelerator(works[i]) for i in members}
            if fit.device == "cpu":
                told = {i for i in members if self._by_table(works[i], residual)}
                for i in told:
                    seconds[i] = table_seconds(works[i], fit)
                members = [i for i in members if i not in told]
            if residual is None:
                for i in members:
                    seconds[i] = roofline_seconds(seen[i], fit)
                continue
            if not members:
                continue
            x: Array = np.array([inputs_of(seen[i]) for i in members])
            ops = np.array([residual.op_index(known_labels(seen[i])) for i in members])
            mean, variance = residual.predict(x, ops)
            covered = residual.covers(x, ops)
            parameters, usual = residual.fit.parameters, residual.fit.mean
            if PUBLISHED in parameters and self._gpu is not None:
                floors = [(known, 1.0) for known in self._gpu.price([seen[i] for i in members])[0]]
            else:
                floors = [floor_parts(seen[i], fit, parameters) for i in members]
            for j, i in enumerate(members):
                floor, share = floors[j]
                seconds[i] = floor * math.exp(usual + share * (mean[j] - usual))
                doubt = math.sqrt(variance[j] + residual.fit.noise)
                sigma[i] = math.hypot(share * doubt, (1.0 - share) * ARITHMETIC_SIGMA)
                sources[i] = measured if covered[j] else "extrapolated"
        if self._gpu is not None and published:
            found = self._gpu.price([works[i] for i in published])
            for i, price, doubt, source in zip(published, *found, strict=True):
                seconds[i], sigma[i], sources[i] = price, doubt, source
        return seconds, sigma, sources

"""Device -> seconds for an op on a device: physics, times what is learnt.

    log seconds = log physics(work, device) + network(shape, numbers(device), numbers(op)) + offset(device, op)

``physics`` and ``networks`` have the first two parts of a CPU, ``gpu.device_model`` those of a GPU; a calibration tells
numbers and offsets. Ops that no network knows are priced by the table of ops. The source of a price says what it rests
on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from placer.errors import ProfileError, ProfileTooOld
from placer.lazy import cached_property
from placer.pricing.framework import framework_counts, host_seconds, kernels_of, pause_seconds
from placer.pricing.gpu.apple import AppleModel
from placer.pricing.gpu.device_model import DeviceModel, device_model, edition
from placer.pricing.networks import Network, cpu_edition, cpu_network
from placer.pricing.ops import COUNTED
from placer.pricing.physics import (
    SHARED_SIGMA,
    atomic_seconds,
    bounds,
    cpu_inputs,
    cut_of,
    fresh_seconds,
    has_physics,
    missed_seconds,
    share_of,
    shared_seconds,
    start_share,
    table_seconds,
    unfolded,
    unfolded_seconds,
)
from placer.pricing.prediction import SIGMA, PricedTrace, Provenance, Source
from placer.pricing.shapes.shape import ONE_PIECE, Work
from placer.pricing.work import describe_step, different_works, known_labels, on_accelerator, op_label
from placer.profile import Device, FamilyFit, Profile
from placer.tracing import Trace

#: Seconds, sigma of log(seconds) and source of each of some ops.
Prices: TypeAlias = tuple[list[float], list[float], list[Source]]
#: Rates without which there are no physics.
_NEEDED_RATES = ("dispatch_seconds", "flops/float32", "bytes_per_second")
#: Standard deviation of log(seconds) of an op whose shape is beyond all that a network was fitted to.
BEYOND = 0.3
#: What is wrong with a fit to other networks.
_OF_OTHER_NETWORKS = "{what} was fitted to other knowledge of {of} than this placer has; run: placer calibrate"


class CostModel:
    """Prices op calls on one device at one thread count."""

    def __init__(self, fit: Device) -> None:
        """Raises ProfileError for a fit without physics, or of other networks than this version has."""
        lacking = [name for name in _NEEDED_RATES if not fit.rates.get(name, 0.0) > 0.0]
        if lacking:
            raise ProfileError(
                f"the profile cannot predict on {fit.device}: it has no {', no '.join(lacking)}; run: placer calibrate"
            )
        self.fit = fit
        if not is_current(fit):
            raise ProfileTooOld(_OF_OTHER_NETWORKS.format(what="the profile", of=fit.gpu or fit.device))

    @cached_property
    def provenance(self) -> Provenance:
        """What the prices rest on: calibration where any family was measured, else what is known of the GPU."""
        if self._gpu is None or self.fit.families:
            return "published" if self.fit.estimated else "calibrated"
        return self._gpu.provenance

    @cached_property
    def _gpu(self) -> DeviceModel | AppleModel | None:
        """The published knowledge of the fit's GPU; None of a CPU."""
        return device_model(self.fit.gpu) if self.fit.gpu else None

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
        seconds, sigma, sources = self._shared(works) if self.fit.cores else self._price_in_groups(works, self.fit)
        if self.fit.device == "cpu":
            for i, work in enumerate(works):
                waits = atomic_seconds(work, self.fit.threads) + missed_seconds(work)
                seconds[i] = max(seconds[i] + waits, fresh_seconds(work, self.fit))
        return seconds, sigma, sources

    def _shared(self, works: Sequence[Work]) -> Prices:
        """``price_works`` of cores that share each op, of which one core's prices are known."""
        cores, threads = self.fit.cores, self.fit.threads
        assert cores is not None
        cuts = [ONE_PIECE if unfolded(work, cores.rates) else cut_of(work) for work in works]
        shares = [share_of(work, min(threads, cut.pieces)) for work, cut in zip(works, cuts, strict=True)]
        one = replace(self.fit, threads=1, rates=cores.rates)
        seconds, sigma, sources = self._price_in_groups(shares, one)
        for i, (work, share) in enumerate(zip(works, shares, strict=True)):
            start = seconds[i] * start_share(share, one)
            seconds[i] = cores.pace * shared_seconds(work, cuts[i], seconds[i], start, cores, threads)
            sigma[i] = math.hypot(sigma[i], SHARED_SIGMA)
        return seconds, sigma, sources

    def _price_in_groups(self, works: Sequence[Work], fit: Device) -> Prices:
        """``price_works`` with the numbers of ``fit``, whatever the cores. What is learnt is of a family at a time."""
        prices: Prices = [0.0] * len(works), [0.0] * len(works), ["guess"] * len(works)
        groups: dict[str, list[int]] = {}
        for i, work in enumerate(works):
            if _is_learnt(work, fit):
                groups.setdefault(work.family, []).append(i)
            else:
                prices[0][i], prices[1][i], prices[2][i] = _by_physics(work, fit)
        price_family = self._by_network if fit.device == "cpu" else self._on_accelerator
        for family, members in groups.items():
            of_family = price_family([works[i] for i in members], fit, family)
            for i, seconds, sigma, source in zip(members, *of_family, strict=True):
                prices[0][i], prices[1][i], prices[2][i] = seconds, sigma, source
        return prices

    def _by_network(self, works: Sequence[Work], fit: Device, family: str) -> Prices:
        """Physics, and what ops of the family take beyond them, by the numbers of this device."""
        network, family_fit = cpu_network(family), fit.families[family]
        assert network is not None
        physics, x = cpu_inputs(works, fit)
        labels = [_label(work, network) for work in works]
        learnt = network.learnt(x, labels, np.array(family_fit.numbers))
        offsets = np.array([family_fit.offset(known_labels(work)) for work in works])
        seconds = physics * np.exp(learnt + offsets)
        covered = network.covers(x).tolist()
        sigma = [
            math.hypot(network.sigma_of(label)[0], family_fit.sigma, 0.0 if inside else BEYOND)
            for label, inside in zip(labels, covered, strict=True)
        ]
        sources: list[Source] = [_measured(fit) if inside else "extrapolated" for inside in covered]
        return seconds.tolist(), sigma, sources

    def _on_accelerator(self, works: Sequence[Work], fit: Device, family: str) -> Prices:
        """What is known of the GPU from others' measurements of it, and how this one differs where it was measured."""
        described = list(map(on_accelerator, works))
        if self._gpu is not None:
            seconds, sigma, sources = self._gpu.price(works)
        else:
            seconds = [bounds(work, fit).seconds for work in described]
            sources = [_source_without_samples(work) for work in described]
            sigma = [SIGMA[source] for source in sources]
        family_fit = fit.families.get(family)
        if family_fit is None:
            return seconds, sigma, sources
        for i, work in enumerate(described):
            seconds[i] *= math.exp(family_fit.offset(known_labels(work)))
            if op_label(work) in family_fit.offsets:
                sigma[i], sources[i] = family_fit.sigma, _measured(fit)
        return seconds, sigma, sources


def _is_learnt(work: Work, fit: Device) -> bool:
    """Whether networks or rows of others know an op; on an accelerator all but views, which launch nothing."""
    if fit.device != "cpu":
        return work.family != "view"
    network = cpu_network(work.family) if work.family in fit.families and not unfolded(work, fit.rates) else None
    return network is not None and bool(_label(work, network))


def _by_physics(work: Work, fit: Device) -> tuple[float, float, Source]:
    """Seconds, sigma of log(seconds) and source of an op that no sample backs."""
    if fit.device != "cpu":
        return 0.0, 0.0, _measured(fit)
    # The table has what no network knows, unless the family counts what such an op does.
    counted = work.family == "view" or (work.effort is not None and work.effort.kind == COUNTED)
    if unfolded(work, fit.rates):
        seconds = unfolded_seconds(work, fit.rates)
    else:
        seconds = bounds(work, fit).seconds if counted else table_seconds(work, fit)
    source = _source_without_samples(work)
    return seconds, SIGMA[source], source


def check_current(profile: Profile) -> None:
    """Raise ProfileTooOld for a profile whose numbers belong to networks of another version."""
    for fit in profile.fits:
        if not is_current(fit):
            name = profile.name or "the profile"
            raise ProfileTooOld(_OF_OTHER_NETWORKS.format(what=name, of=fit.gpu or fit.device))


def is_current(fit: Device) -> bool:
    """Whether the numbers of the fit's families belong to the networks of this version."""
    if not fit.families:
        return True
    if fit.device == "cpu":
        return fit.edition == cpu_edition() and all(_fits(name, family) for name, family in fit.families.items())
    return not fit.gpu or fit.edition == edition()


def _fits(name: str, family: FamilyFit) -> bool:
    """Whether a family has as many numbers as its network takes."""
    network = cpu_network(name)
    return network is None or len(family.numbers) == network.device_numbers


def _label(work: Work, network: Network) -> str:
    """The name that a network knows an op by; "" where it does not."""
    return next((label for label in known_labels(work) if label in network.labels), "")


def _measured(fit: Device) -> Source:
    """What a price rests on that was measured."""
    return "published" if fit.estimated else "calibrated"


def _source_without_samples(work: Work) -> Source:
    """What a price rests on that no sample backs."""
    return "physics" if has_physics(work) else "guess"

"""Profile -> seconds for an op on a device: a physical floor times a learnt residual.

    seconds = (latency + cost x FLOPs + cost x bytes + ...) * exp(residual)

The floor's costs are fitted per op (``calibration/floors.py``), the residual is learnt from samples
(``gaussian_process``). Where there are none the roofline model stands alone (Williams, Waterman & Patterson, CACM
52(4), 2009), and says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from placer.errors import ProfileError
from placer.machine import HeapState
from placer.pricing.framework import framework_counts
from placer.pricing.gaussian_process import UNKNOWN_OP, Array, Residual
from placer.pricing.layouts import LAYOUT
from placer.pricing.operators import FAMILIES, Work, amounts, describe_step, feature_names, ops_inside
from placer.pricing.page_faults import fault_seconds
from placer.pricing.prediction import PricedTrace, Source
from placer.pricing.sharing import PER_CORE
from placer.profile import DeviceFit
from placer.tracing import Trace

#: Standard deviation of log(seconds) where only the floor is known: a factor of 3 either way at 90 %.
FLOOR_SIGMA = math.log(3.0) / 1.645
#: Rates without which there is no physical floor.
_NEEDED_RATES = ("dispatch_seconds", "flops/float32", "bytes_per_second")
#: Rate relative to float32 assumed for a dtype that was never measured.
UNMEASURED_RATE = {"float64": 0.5, "bfloat16": 1.0, "float16": 1.0, "complex64": 0.25, "complex128": 0.125}
#: Amounts that are arithmetic; the parameter by which a fit says that its residual was learnt apart from theirs; the
#: least share of an op that is left to the residual; and the standard deviation of log(seconds) of the rest.
_ARITHMETIC, ARITHMETIC_TOLD = ("flops", f"{PER_CORE}flops"), "arithmetic_told"
LEAST_SHARE, ARITHMETIC_SIGMA = 0.05, 0.1
#: The same of loops that begin anew.
_LOOPS, LOOPS_TOLD = frozenset(("restarts", "blocks", f"{PER_CORE}restarts", f"{PER_CORE}blocks")), "loops_told"
#: What a fit calls the seconds that the host takes to issue a call, and to issue an update besides the calls in it, up
#: to ``/`` and the op or family.
HOST, HOST_UPDATE = "host", "host_update"
#: Stands between an op's name and its variant.
VARIANT = "/"


def fitted_features(family: str) -> tuple[str, ...]:
    """Names of the regression inputs of a family's residual, in order; () for a family this version does not know."""
    return ("flops", "bytes", *feature_names(family)) if family in FAMILIES else ()


def foreign_family(fit: DeviceFit) -> str | None:
    """A family fitted on other features than this version of placer describes ops by; None where there is none."""
    return next((name for name, f in fit.families.items() if f.feature_names != fitted_features(name)), None)


def op_label(work: Work) -> str:
    """The categorical name a residual is learnt under: ``op``, ``op/variant``, ``op:dtype`` or ``op/variant:dtype``.

    float32 is the norm, any other dtype another op, and so is a variant. Whether an op writes in place is a feature.
    """
    op, dot, layout = work.op.partition(LAYOUT)
    name, variant = f"{op.rstrip('_')}{dot}{layout}", FAMILIES[work.family].variant(work)
    if variant:
        name = f"{name}{VARIANT}{variant}"
    return name if work.dtype == "float32" else f"{name}:{work.dtype}"


def _labels(work: Work) -> tuple[str, ...]:
    """What a fit may know an op by, the closest first: its label, and the one in any layout if it never saw this."""
    label = op_label(work)
    name, dot, rest = label.partition(LAYOUT)
    if not dot:
        return (label,)
    _, colon, dtype = rest.partition(":")
    return label, f"{name}{colon}{dtype}"


def _op_index(residual: Residual, work: Work) -> int:
    known = (index for index in map(residual.op_index, _labels(work)) if index != UNKNOWN_OP)
    return next(known, UNKNOWN_OP)


def inputs_of(work: Work) -> tuple[float, ...]:
    """The regression inputs of one op: amounts on a log2 scale, flags as they are."""
    amounts = (work.flops, work.bytes, *work.sizes)
    return (*(math.log2(1.0 + a) for a in amounts), *work.flags)


def roofline_seconds(work: Work, fit: DeviceFit) -> float:
    """The least time physics allows: dispatch, then arithmetic or memory traffic, whichever is longer."""
    rates = fit.rates
    peak = rates.get(f"flops/{work.dtype}") or rates["flops/float32"] * UNMEASURED_RATE.get(work.dtype, 1.0)
    return ops_inside(work) * rates["dispatch_seconds"] + max(work.flops / peak, work.bytes / rates["bytes_per_second"])


def floor_seconds(work: Work, fit: DeviceFit, parameters: Mapping[str, float]) -> float:
    """The family's physical account of an op: a latency, and a cost for each amount its time is proportional to.

    The costs were fitted for the op itself where it was measured often enough (``name@op``), else for its family. An
    op in another dtype than float32 that was not is scaled by the ratio of the two peak rates. Never below the
    roofline's third: no fit may promise the impossible.
    """
    return floor_parts(work, fit, parameters)[0]


def floor_parts(work: Work, fit: DeviceFit, parameters: Mapping[str, float]) -> tuple[float, float]:
    """(``floor_seconds``, the share of it that the family's residual holds for, from ``LEAST_SHARE`` to 1).

    The residual tells what memory, caches and the framework's code make of an op, compared by its sizes. Where the time
    goes into evaluating a function of each element, that is told by the floor: of a mish of 2^18 elements the floor is
    off by 4 %, and would be by a third with the residual of the ops that only move as much. So it is where beginning
    short loops anew takes the time: that is instructions, and no cache makes them more.
    """
    suffix = next((f"@{label}" for label in _labels(work) if f"latency@{label}" in parameters), "")
    total = parameters[f"latency{suffix}"]
    arithmetic = loops = 0.0
    for name, amount in amounts(work, fit.threads).items():
        part = parameters.get(f"{name}{suffix}", 0.0) * amount
        total += part
        if name in _ARITHMETIC:
            arithmetic += part
        elif name in _LOOPS:
            loops += part
    told = loops if parameters.get(LOOPS_TOLD) else 0.0
    if parameters.get(ARITHMETIC_TOLD) and FAMILIES[work.family].evaluates(work):
        told += arithmetic
    share = max(1.0 - told / total, LEAST_SHARE) if told > 0.0 else 1.0
    if not suffix and work.dtype != "float32":
        peak = fit.rates.get(f"flops/{work.dtype}") or fit.rates["flops/float32"] * UNMEASURED_RATE.get(work.dtype, 1.0)
        total += work.flops * max(1.0 / peak - 1.0 / fit.rates["flops/float32"], 0.0)
    return max(total, roofline_seconds(work, fit) / 3.0), share


def host_seconds(work: Work, framework: Mapping[str, float]) -> float:
    """Seconds to issue one call: known of the op itself, else of its family, else of any op; 0.0 where nothing is.

    An update is issued for all tensors at once: each call has its own time and its share of what the whole takes.
    """
    each = _of(work, HOST, framework, framework.get(HOST, 0.0))
    if work.family != "optimizer":
        return each
    _, tensors, *_ = work.sizes
    return each + _of(work, HOST_UPDATE, framework, 0.0) / tensors


def _of(work: Work, what: str, framework: Mapping[str, float], otherwise: float) -> float:
    return framework.get(f"{what}/{work.op}", framework.get(f"{what}/{work.family}", otherwise))


class CostModel:
    """Prices op calls on one device at one thread count. Residuals are factorised once and shared by every call."""

    def __init__(self, fit: DeviceFit) -> None:
        """Raises ProfileError for a fit without a floor, or of features this version does not describe ops by."""
        lacking = [name for name in _NEEDED_RATES if not fit.rates.get(name, 0.0) > 0.0]
        lacking += [f"latency of {name}" for name, family in fit.families.items() if "latency" not in family.parameters]
        if lacking:
            raise ProfileError(
                f"the profile cannot price on {fit.device}: it has no {', no '.join(lacking)}; run: placer calibrate"
            )
        foreign = foreign_family(fit)
        if foreign is not None:
            raise ProfileError(
                f"the profile was fitted by another version of placer (features of {foreign!r} differ): run placer "
                "calibrate, or load a profile of this version"
            )
        self.fit = fit

    @cached_property
    def _residuals(self) -> dict[str, Residual]:
        return {name: Residual(family) for name, family in self.fit.families.items()}

    def price(self, trace: Trace, heap: HeapState | None = None) -> PricedTrace:
        """A price for every call of ``trace``; equal calls are priced once.

        ``heap`` is where the process's memory stands: what the step finds fresh costs page faults (CPU only; None: no
        page is fresh).
        """
        described = describe_step(trace)
        slot: dict[int, int] = {}
        works: list[Work] = []
        for work in described:
            if id(work) not in slot:
                slot[id(work)] = len(works)
                works.append(work)
        order = [slot[id(work)] for work in described]
        seconds, sigma, sources = self.price_works(works)
        issue = [self._host_seconds(work) for work in works]
        priced, host = [seconds[i] for i in order], [issue[i] for i in order]
        for number, extra in self._page_faults(trace, heap).items():
            priced[number] += extra
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
            works=tuple(described),
        )

    def _page_faults(self, trace: Trace, heap: HeapState | None) -> dict[int, float]:
        """Seconds spent on fresh pages, by call number."""
        return fault_seconds(trace, heap, self.fit.rates) if self.fit.device == "cpu" else {}

    def price_works(self, works: Sequence[Work]) -> tuple[list[float], list[float], list[Source]]:
        """Seconds, sigma of log(seconds) and source of each work, evaluated family by family."""
        seconds, sigma = [0.0] * len(works), [FLOOR_SIGMA] * len(works)
        sources: list[Source] = ["floor"] * len(works)
        by_family: dict[str, list[int]] = {}
        for i, work in enumerate(works):
            by_family.setdefault(work.family, []).append(i)
        for family, members in by_family.items():
            residual = self._residuals.get(family)
            if family == "view" and self.fit.device != "cpu":
                for i in members:  # nothing runs on the device
                    seconds[i], sigma[i], sources[i] = 0.0, 0.0, "calibrated"
                continue
            if residual is None:
                for i in members:
                    seconds[i] = roofline_seconds(works[i], self.fit)
                continue
            x: Array = np.array([inputs_of(works[i]) for i in members])
            ops = np.array([_op_index(residual, works[i]) for i in members])
            mean, variance = residual.predict(x, ops)
            covered = residual.covers(x, ops)
            parameters, usual = residual.fit.parameters, residual.fit.mean
            for j, i in enumerate(members):
                floor, share = floor_parts(works[i], self.fit, parameters)
                seconds[i] = floor * math.exp(usual + share * (mean[j] - usual))
                doubt = math.sqrt(variance[j] + residual.fit.noise)
                sigma[i] = math.hypot(share * doubt, (1.0 - share) * ARITHMETIC_SIGMA)
                sources[i] = "calibrated" if covered[j] else "extrapolated"
        return seconds, sigma, sources

    def _host_seconds(self, work: Work) -> float:
        if self.fit.device == "cpu":
            return 0.0
        return host_seconds(work, self.fit.framework)

"""What is expected of a machine's ops before they are measured: the prices of another machine, measured at length."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placer.calibration.measuring.speed_probe import USUAL_READING
from placer.pricing import (
    ARITHMETIC_BY_FLOOR,
    CONTEXT_SIZES,
    FAMILIES,
    LOOPS_BY_FLOOR,
    PUBLISHED,
    VARIANT,
    CostModel,
    Work,
)
from placer.profile import DeviceFit, FamilyFit

Array = NDArray[np.float64]


class Expectation:
    """Prices of another machine's fit, and the points it rests on."""

    def __init__(self, fit: DeviceFit, *, same_class: bool = False, name: str = "") -> None:
        """``same_class``: the other machine is of this one's class, and its times are expected to be those of this one.
        ``name`` is what its profile is called.

        Raises ProfileError for a fit of other features than this version's.
        """
        self.fit = fit
        self.same_class = same_class
        self.name = name
        self._model = CostModel(fit)
        self._points: dict[str, list[Work]] = {}
        self._parts: dict[str, Expectation] = {}

    def __reduce__(self) -> tuple[Callable[..., Expectation], tuple[Any, ...]]:
        """Another process computes for itself what is kept here."""
        return _expectation, (self.fit, self.same_class, self.name)

    @property
    def families(self) -> Mapping[str, FamilyFit]:
        """What the other machine knows, by family."""
        return self.fit.families

    def of_family(self, name: str) -> Expectation:
        """What is expected of family ``name`` alone."""
        if name not in self._parts:
            part = replace(self.fit, families={name: self.families[name]})
            self._parts[name] = Expectation(part, same_class=self.same_class, name=self.name)
        return self._parts[name]

    def log_seconds(self, works: Sequence[Work]) -> Array:
        """Logs of what the ops would take there."""
        return np.asarray(np.log(self._model.price_works(works)[0]), dtype=np.float64)

    def log_reading_ratio(self, rates: Mapping[str, float]) -> float:
        """Log of the usual reading in ``rates`` (of this machine) over the other's; 0.0 where either is unknown."""
        here, there = rates.get(USUAL_READING, 0.0), self.fit.rates.get(USUAL_READING, 0.0)
        return math.log(here / there) if here > 0.0 and there > 0.0 else 0.0

    def costs(self, name: str, rates: Mapping[str, float], pace: float) -> dict[str, float]:
        """What the floor of family ``name`` is expected to cost on a device of these ``rates``, by parameter.

        FLOPs and bytes go by the devices' own rates, all else by the ``pace`` (a logarithm) of this machine's ops.
        """
        return {
            parameter: cost * self._factor(parameter, rates, pace)
            for parameter, cost in self.families[name].parameters.items()
            if parameter not in (ARITHMETIC_BY_FLOOR, LOOPS_BY_FLOOR, PUBLISHED)
        }

    def _factor(self, parameter: str, rates: Mapping[str, float], pace: float) -> float:
        there = self.fit.rates
        amount, _, label = parameter.partition("@")
        if amount == "bytes":
            return there["bytes_per_second"] / rates["bytes_per_second"]
        if amount == "flops":
            # An accelerator's costs are of FLOPs of float32 in any case (``floor_amounts``).
            own = f"flops/{label.rpartition(':')[2]}" if self.fit.device == "cpu" else ""
            rate = own if own in there and own in rates else "flops/float32"
            return there[rate] / rates[rate]
        return math.exp(pace)

    def points(self, name: str) -> list[Work]:
        """The ops that family ``name`` was learnt from."""
        if name not in self._points:
            fit = self.families[name]
            pairs = zip(fit.x.tolist(), fit.op_index, strict=True)
            self._points[name] = [work_at(name, fit.ops[op], row) for row, op in pairs]
        return self._points[name]


def _expectation(fit: DeviceFit, same_class: bool, name: str) -> Expectation:
    return Expectation(fit, same_class=same_class, name=name)


def work_at(family: str, label: str, inputs: Sequence[float]) -> Work:
    """The op whose regression inputs these are: the inverse of ``pricing.inputs_of`` and ``pricing.op_label``."""
    name, _, dtype = label.rpartition(":")
    if name.endswith(":"):  # the double colon of a name without dtype
        name, dtype = label, "float32"
    name, _, _ = name.partition(VARIANT)  # the sizes determine the variant
    sizes = len(FAMILIES[family].sizes) + len(CONTEXT_SIZES)
    # Back from its logarithm, a width of 64 is not quite that, and another number of vector registers is filled.
    flops, moved, *rest = (round(math.exp2(v) - 1.0, 6) for v in inputs[: 2 + sizes])
    return Work(family, name, dtype, flops, moved, tuple(rest), tuple(inputs[2 + sizes :]))

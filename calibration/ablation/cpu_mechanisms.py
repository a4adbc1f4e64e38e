"""The mechanisms of the CPU side, and how each is switched off: by patching, so that pricing itself has no switches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np

from placer.calibration.ablation.cpu import CpuMechanism
from placer.calibration.ablation.switching import Change, Changes, changed, to
from placer.calibration.fitting.measured_ops import OpTimes
from placer.pricing import FAMILIES, LEARNT, PLACE, Work, feature_names

_PRICING, _FIT, _PROBE = "placer.pricing", "placer.calibration.fitting", "placer.calibration.measuring.speed_probe"
_RESIDUAL, _COST_MODEL = f"{_PRICING}.gaussian_process.Residual", f"{_PRICING}.cost_model"
#: The counts of a step without what the caches keep of its code.
_PLAIN = {
    "step", "forward_op", "python_call", "training_step", "backward_op", "autograd_node", "update", "updated_tensor",
}  # fmt: skip
#: Points that a residual is cut down to.
_FEW = 300
#: What an op's place in its step is described by: all that a view is.
_CONTEXT = feature_names("view")


# --- residual and floor ---


def _mean_alone(_: Any) -> Any:
    return lambda self, x, ops: (np.full(len(x), self.fit.mean), np.full(len(x), self.fit.signal))


def _few_points(fit_op_times: Any) -> Any:
    def fit(name: str, times: OpTimes, *rest: Any, **options: Any) -> Any:
        some = OpTimes(times.works[:_FEW], times.seconds[:_FEW], times.noise[:_FEW])
        return fit_op_times(name, some, *rest, **options)

    return fit


def _all_residual(floor_parts: Any) -> Any:
    return lambda *asked: (floor_parts(*asked)[0], 1.0)


def _without_places(amounts: Any) -> Any:
    def found(work: Work, threads: int = 1) -> dict[str, float]:
        return {name: amount for name, amount in amounts(work, threads).items() if name not in PLACE}

    return found


def _blank(names: Sequence[str]) -> Change:
    """Every op has a 0 in the inputs of these names."""

    def change(inputs_of: Any) -> Any:
        def inputs(work: Work) -> tuple[float, ...]:
            fixed = ("flops", "bytes", *feature_names(work.family))
            return tuple(0.0 if n in names else v for n, v in zip(fixed, inputs_of(work), strict=True))

        return inputs

    return change


def _families(**changes: Any) -> Callable[[], AbstractContextManager[Any]]:
    """All families with these fields."""
    return lambda: patch.dict(FAMILIES, {n: replace(f, **changes) for n, f in FAMILIES.items()})


def _without_amounts(families: Sequence[str]) -> AbstractContextManager[Any]:
    plain = {name: replace(FAMILIES[name], amounts={}, cpu_amounts={}) for name in families}
    return patch.dict(FAMILIES, plain)


def _refitted(
    name: str, changes: Changes, *code: str, families: tuple[str, ...] | None = None
) -> CpuMechanism:
    return CpuMechanism(name, changed(changes), code, "fits", families)


def _amounts(*families: str, code: Sequence[str] = ()) -> CpuMechanism:
    what = " and ".join(families) if len(families) < 3 else "all families"
    return CpuMechanism(
        f"floor: own amounts of {what}", partial(_without_amounts, families), tuple(code), "fits", families
    )


def _inputs(*names: str) -> CpuMechanism:
    where = (f"{_COST_MODEL}.inputs_of", f"{_FIT}.measured_ops.inputs_of")
    label = ", ".join(names) if len(names) < 4 else "all of an op's place in its step"
    return _refitted(f"residual: {label}", dict.fromkeys(where, _blank(names)))


_ON_OPS = (
    CpuMechanism("residual", changed({f"{_RESIDUAL}.predict": _mean_alone}), (f"{_PRICING}.gaussian_process",)),
    CpuMechanism(
        "page faults", changed({f"{_COST_MODEL}.CostModel._page_faults": to(lambda *_: {})}),
        (f"{_PRICING}.page_faults",),
    ),
    _refitted("floor: costs of each op", {f"{_FIT}.floors.LEAST_OWN": to(10**9)}),
    _amounts(*FAMILIES),
    *(
        _amounts(name, code=[f"{_PRICING}.families.{name}"])
        for name in ("recurrent", "indexing", "matmul", "attention", "pooling", "optimizer")
    ),
    _amounts("convolution", "convolution_backward", code=[f"{_PRICING}.families.convolution"]),
    _amounts("elementwise", "reduction", code=[f"{_PRICING}.families.tensor_iterator"]),
    CpuMechanism("floor: loops shared among cores", _families(sharing=None), (f"{_PRICING}.families.sharing",), "fits"),
    CpuMechanism("floor: amounts of profiles made before", _families(earlier={}), (), "fits"),
    _refitted("floor: place in the step", {f"{_PRICING}.floors.amounts": _without_places}),
    _refitted(
        "floor: arithmetic and loops told by it alone",
        dict.fromkeys((f"{_COST_MODEL}.floor_parts", f"{_FIT}.family.floor_parts"), _all_residual),
    ),
    CpuMechanism(
        "kernels of depthwise convolutions apart", _families(variant=lambda _: ""), (), "fits",
        ("convolution", "convolution_backward"),
    ),
    _refitted(f"residual: more than {_FEW} points", {f"{_FIT}.refitting.fit_op_times": _few_points}),
    _inputs(*_CONTEXT),
    *map(_inputs, _CONTEXT),
    _inputs("ragged"),
    _inputs("inner", "block"),
)  # fmt: skip

# --- the framework's counts ---


def _counts(name: str, *counts: str) -> CpuMechanism:
    return CpuMechanism(f"framework: {name}", nullcontext, (), "fits", None, counts)


_ON_FRAMEWORK = (
    _counts("all but plain counts", *(name for name in LEARNT if name not in _PLAIN)),
    _counts("reuse distances in seconds", *(name for name in LEARNT if name.endswith(("us", "ms")))),
    _counts("reuse distance in ops", "op_reuse_distance_100_ops", "call_reuse_distance_100_ops"),
    _counts("evicted calls", "evicted_call"),
    _counts("cold nodes", "cold_node"),
)  # fmt: skip

# --- calibration ---


def _at_any_speed(_: Any) -> Any:
    return lambda steps, readings: (list(steps), float(np.median([step.reading for step in steps])))


def _pace_alone(_: Any) -> Any:
    return lambda self, x, ops: (np.full(len(x), self._pace), np.full(len(x), self._prior.family_pace))


def _quiet_ones(shipped: Any) -> Any:
    return lambda: tuple(found for found in shipped() if not found.name.endswith("-busy"))


def _recalibrated(name: str, changes: Changes, *code: str) -> CpuMechanism:
    here = {f"{_FIT}.device.worth_workers": to(lambda _: 1)}  # nothing is off in another process
    return CpuMechanism(name, changed({**changes, **here}), code, "calibration")


_ON_CALIBRATION = (
    _recalibrated(
        "transfer from shipped profiles", {f"{_FIT}.shipped_references": to(lambda: ())},
        *(f"{_FIT}.{name}" for name in ("transfer", "difference", "comparison", "expectation", "references")),
    ),
    _recalibrated(
        "transfer: differences within families", {f"{_FIT}.difference.Difference.predict": _pace_alone},
        f"{_FIT}.difference",
    ),
    _recalibrated("transfer: speed of the moment", {f"{_FIT}.difference.DRIFTS": to((0.0,))}),
    _recalibrated(
        "transfer: trust in a minute's pace", {f"{_FIT}.comparison._trust": to(lambda *_: 1.0)},
        f"{_FIT}.comparison:_trust",
    ),
    _recalibrated("transfer: profiles of contended machines", {f"{_FIT}.shipped_references": _quiet_ones}),
    _recalibrated(
        "speed probe: steps of one speed", {"placer.calibration.build.at_one_speed": _at_any_speed},
        *(f"{_PROBE}.{name}" for name in ("probe", "readings", "watching")),
    ),
)  # fmt: skip

CPU_MECHANISMS: tuple[CpuMechanism, ...] = (*_ON_OPS, *_ON_FRAMEWORK, *_ON_CALIBRATION)

"""How parts of pricing for GPUs are switched off: what stands there instead.

Parts are replaced under the names that pricing looks them up by; production code knows nothing of it. An input of a
network that is switched off gets its mean over what the network was fitted to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from placer.calibration.ablation.switching import Changes, changed, to
from placer.pricing import LEARNT, Clocks, PricedTrace
from placer.pricing.gpu import COLUMNS

EVALUATE = "placer.pricing.gpu.network.Network.evaluate"
ROWS_OF = "placer.pricing.gpu.device_model.rows_of"
PUBLISHED_HOST = "placer.pricing.gpu.catalog_profile.published_host"


# What is learnt over the physics.


def nothing_learnt(network: Any, x: Any, labels: Any, gpu: str) -> Any:
    """Instead of a network's answer: physics are right."""
    return np.zeros(len(x)), np.zeros(len(x))


def unbounded(_: str, physics: Any, learnt: Any) -> Any:
    """In place of ``physics.kernel_seconds``: what is learnt is believed, however much it is."""
    return physics * np.exp(learnt)


def physics_of(kind: str) -> Changes:
    """Rows of one kind are priced by physics alone."""

    def change(price_rows: Any) -> Any:
        def answer(model: Any, of: str, dtype: str, rows: Any) -> Any:
            with changed({EVALUATE: to(nothing_learnt)} if of == kind else {})():
                return price_rows(model, of, dtype, rows)

        return answer

    return {"placer.pricing.gpu.device_model.DeviceModel.price_rows": change}


def networks_with(**values: Callable[[Any], Any]) -> Changes:
    """The networks, with these fields as the functions make them of a network."""

    def change(networks: Any) -> Any:
        def fields(network: Any) -> dict[str, Any]:
            return {name: value(network) for name, value in values.items()}

        return lambda: {kind: replace(network, **fields(network)) for kind, network in networks().items()}

    return {"placer.pricing.gpu.device_model.networks": change}


def unknown_gpu(evaluate: Any) -> Any:
    """A network's answer for a GPU that was not published."""
    return lambda network, x, labels, gpu: evaluate(network, x, labels, "")


def family_of_label(_: Any) -> Any:
    """The label of an op that was not published."""

    def known(network: Any, label: str) -> str:
        family = f"{label.partition(':')[0]}:"
        return family if family in network.labels else ""

    return known


def mean_where_not_said(evaluate: Any) -> Any:
    """A network's answer, which takes an input that is not a number at its mean."""
    return lambda network, x, labels, gpu: evaluate(network, np.where(np.isnan(x), network.mean, x), labels, gpu)


def without_inputs(*numbers: int) -> Changes:
    """Inputs that all kinds have, by their numbers in ``physics.inputs``."""

    def change(inputs: Any) -> Any:
        def answer(*asked: Any) -> Any:
            seconds, x = inputs(*asked)
            x[:, numbers] = np.nan
            return seconds, x

        return answer

    return {"placer.pricing.gpu.device_model.inputs": change, EVALUATE: mean_where_not_said}


def without_inputs_of(name: str) -> Changes:
    """Inputs that a function of ``physics`` computes."""

    def change(function: Any) -> Any:
        return lambda *asked: [np.multiply(value, np.nan) for value in function(*asked)]

    return {f"placer.pricing.gpu.physics.{name}": change, EVALUATE: mean_where_not_said}


# Rows and priced steps.


def columns(**neutral: float) -> Changes:
    """Columns of rows, each with the value that tells nothing."""

    def change(rows_of: Any) -> Any:
        def with_neutral(row: Any) -> Any:
            named = zip(COLUMNS[row.kind], row.columns, strict=True)
            return row._replace(columns=tuple([neutral.get(name, value) for name, value in named]))

        return lambda work: tuple([with_neutral(row) for row in rows_of(work)])

    return {ROWS_OF: change}


def depthwise_as_any(rows_of: Any) -> Any:
    """Depthwise convolutions are convolutions like others."""
    usual = {"kind": "convolution", "label": "convolution"}
    return lambda work: tuple([row._replace(**usual) if row.kind == "depthwise" else row for row in rows_of(work)])


def gradient_as_forward(rows_of: Any) -> Any:
    """A convolution's gradient to each operand is as its forward."""

    def answer(work: Any) -> Any:
        if work.family != "convolution_backward":
            return rows_of(work)
        return rows_of(replace(work, family="convolution")) * (2 if work.flags[6] else 1)

    return answer


def priced(rewrite: Callable[[PricedTrace], PricedTrace]) -> Changes:
    """What is changed of a priced step, before it is put on the clocks."""

    def change(price: Any) -> Any:
        return lambda model, trace, heap=None: rewrite(price(model, trace, heap))

    return {"placer.pricing.cost_model.CostModel.price": change}


def twice_the_forward(found: PricedTrace) -> PricedTrace:
    """The backward pass takes the device twice as long as forward and loss, whatever its ops are."""
    timed = [(call.phase, seconds) for call, seconds in zip(found.trace.calls, found.seconds, strict=True)]
    backward = sum(seconds for phase, seconds in timed if phase == "backward")
    if not backward:
        return found
    factor = 2.0 * sum(seconds for phase, seconds in timed if phase in ("forward", "loss")) / backward
    return replace(found, seconds=tuple(s * factor if phase == "backward" else s for phase, s in timed))


def never_waiting(found: PricedTrace) -> PricedTrace:
    """No call makes the host wait for the device."""
    return replace(found, trace=replace(found.trace, syncs=0))


# The host and the two clocks.


def one_cost(issue: dict[str, float]) -> dict[str, float]:
    """Every op takes the host what those of the median family take; views and updates stay as they are."""
    apart = {name: issue[name] for name in ("view", "optimizer")}
    return {**dict.fromkeys(issue, median(v for name, v in issue.items() if name not in apart)), **apart}


def framework(keeps: Callable[[str], bool]) -> Changes:
    """The framework's own time between the ops consists of the costs whose names it ``keeps``."""

    def change(published_host: Any) -> Any:
        def answer(sheet: Any, cpu: Any) -> Any:
            rates, costs = published_host(sheet, cpu)
            return rates, {name: cost for name, cost in costs.items() if keeps(name) or name not in LEARNT}

        return answer

    return {PUBLISHED_HOST: change}


def usual_host(published_host: Any) -> Any:
    """Every GPU is driven by the usual host of published measurements."""
    return lambda sheet, cpu: published_host(sheet, None)


def in_turn(schedule: Any, *_: Any) -> float:
    """Seconds of a step without a queue: the host waits for every kernel."""
    return sum(_totals(schedule))


def slower_of_both(schedule: Any, *_: Any) -> float:
    """Seconds of a step that takes as long as the slower of host and device, whatever the order of its ops."""
    host, device, alone = _totals(schedule)
    return max(host, device) + alone


def from_idle(schedule: Any, fit: Any, *_: Any) -> float:
    """Seconds of a step on an idle device, not of the third of three."""
    clocks = Clocks(launch=fit.rates.get("launch_seconds", 0.0))
    clocks.play(*[item for _, _, item in schedule])
    return max(clocks.host, clocks.device)


def _totals(schedule: Any) -> tuple[float, float, float]:
    items = [item for _, _, item in schedule]
    return sum(i.issue for i in items), sum(i.device for i in items), sum(i.alone for i in items)


def copied(data: str) -> Changes:
    """The batch is copied as if ``data`` had been asked for."""
    return {"placer.pricing.timeline._copies": lambda copies: lambda trace, fit, _: copies(trace, fit, data)}


# Compiled steps.


def places(**values: Any) -> Changes:
    """Calls in the compiler's kernels have places with these values."""

    def change(places_in_kernels: Any) -> Any:
        return lambda *asked: [
            replace(place, **values) if place.kernel >= 0 else place for place in places_in_kernels(*asked)
        ]

    return {"placer.pricing.compiled.places_in_kernels": change}


def always_written(_: Any) -> Any:
    """Instead of ``_Fusion._written``: what anything outside its kernel reads is written to memory."""
    return lambda fusion, value, maker: (
        value in fusion.results or fusion._leaves(value, maker) or not fusion.readers[value]
    )

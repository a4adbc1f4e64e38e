"""What is learnt of ops on CPUs and shipped: its file, its networks, and what it says of machines and kinds of CPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from priced import RATES, device, matmul

from placer.pricing import FAMILIES, CostModel, Network, cpu_edition, cpu_network, feature_names, is_current
from placer.pricing.gpu.device_model import networks as module
from placer.pricing.networks import (
    ROUNDED,
    cpu_class_families,
    cpu_document,
    cpu_starts,
    packed,
    packed_layer,
    read_network,
)
from placer.profile import Device, cpu_kinds, load, shipped

NETWORKS = {name: cpu_network(name) for name in cpu_document()["networks"]}
#: FLOPs and bytes stand before a family's features, what physics say of arithmetic and traffic after them.
MORE_INPUTS = 4


def network_of(family: str) -> Network:
    found = NETWORKS[family]
    assert found is not None
    return found


def rows(network: Network, count: int = 40) -> tuple[np.ndarray, list[str], np.ndarray]:
    """Inputs within what a network was fitted to, labels, and numbers of a device."""
    random = np.random.default_rng(5)
    x = random.uniform(network.low, network.high, (count, len(network.low)))
    labels = [str(label) for label in random.choice(list(network.labels), count)]
    return x, labels, random.normal(0.0, 0.3, network.device_numbers)


def test_the_file_has_a_sane_network_of_every_family_but_those_without_samples() -> None:
    assert set(FAMILIES) - set(NETWORKS) == {"quantized"}
    for family in NETWORKS:
        network = network_of(family)
        inputs = len(feature_names(family)) + MORE_INPUTS
        assert {len(each) for each in (network.low, network.high, network.mean, network.scale)} == {inputs}, family
        assert "" in network.labels, family
        assert all(0.0 < known <= unknown < 1.5 for known, unknown in network.sigma.values()), family
        assert {len(numbers) for numbers in network.devices.values()} == {network.device_numbers}, family
        layers = [array for pair in network.layers for array in pair]
        arrays = [network.mean, *layers, *network.labels.values(), *network.devices.values()]
        assert all(np.isfinite(each).all() for each in arrays), family
        assert ((network.scale > 0.0) & (network.low <= network.high)).all(), family
        assert all(start > 0.0 for start in cpu_document()["starts"][family].values()), family


def test_machines_and_kinds_of_cpu_have_numbers_of_these_networks() -> None:
    assert cpu_edition() > 0
    for name in shipped():
        fits = load(name, samples=False).fits
        assert set().union(*(fit.families for fit in fits)) == set(NETWORKS), name
        assert all(map(is_current, fits)), name
    kinds = cpu_document()["classes"]
    assert set(kinds) <= set(cpu_kinds())
    for kind in kinds:
        families = cpu_class_families(kind)
        assert families
        assert is_current(Device("cpu", 1, RATES, families, {}, {}, edition=cpu_edition())), kind
    assert cpu_class_families("no such kind") == {}


@pytest.mark.parametrize("family", NETWORKS)
def test_slopes_are_what_small_changes_of_the_numbers_change(family: str) -> None:
    network = network_of(family)
    x, labels, numbers = rows(network)
    found, step = network.slopes(x, labels, numbers), 1e-5
    for i in range(network.device_numbers):
        change = step * np.eye(network.device_numbers)[i]
        more, less = (network.learnt(x, labels, numbers + sign * change) for sign in (1.0, -1.0))
        np.testing.assert_allclose(found[:, i], (more - less) / (2.0 * step), rtol=1e-5, atol=1e-7)
    assert np.abs(found).max() > 1e-3


@pytest.mark.parametrize("family", NETWORKS)
def test_beyond_what_it_was_fitted_to_an_input_is_taken_at_its_edge(family: str) -> None:
    network = network_of(family)
    x, labels, numbers = rows(network)
    assert network.covers(x).all()
    edge, beyond = x.copy(), x.copy()
    edge[:, 0], beyond[:, 0] = network.high[0], network.high[0] + 1.0
    np.testing.assert_array_equal(network.learnt(edge, labels, numbers), network.learnt(beyond, labels, numbers))
    assert not network.covers(beyond).any()
    assert not network.covers(network.low[None, :] - 0.1).any()


def test_a_row_at_an_edge_that_half_precision_rounded_is_within_it() -> None:
    network = network_of("encoder")
    for limit, outwards in ((network.low, -np.inf), (network.high, np.inf)):
        next_half = np.nextafter(limit.astype(np.float16), np.float16(outwards)).astype(float)
        row = (limit + next_half) / 2.0  # which half precision may round to the limit
        assert network.covers(row[None, :]).all()


def test_a_network_survives_as_text_as_exactly_as_halves_and_bytes_have_it() -> None:
    random = np.random.default_rng(1)
    inputs, device, label = random.normal(0.0, 3.0, 5), random.normal(0.0, 0.3, 2), random.normal(0.0, 0.3, 3)
    weights = [random.normal(0.0, 1.0, shape) * random.uniform(0.01, 5.0, shape[1]) for shape in ((10, 4), (4, 1))]
    weights[0][:, 1] = 0.0

    def written(weights: Sequence[np.ndarray]) -> dict[str, Any]:
        sides = {name: packed(inputs) for name in ("low", "high", "mean", "scale")}
        layers = [packed_layer(weight, weight[0]) for weight in weights]
        of_names = {"labels": {"": packed(label)}, "devices": {"a": packed(device)}, "sigma": {"": (0.1, 0.2)}}
        return {**sides, **of_names, "layers": layers}

    found = read_network(written(weights))
    halves = {"rtol": ROUNDED, "atol": 1e-7}
    for kept, given in ((found.low, inputs), (found.labels[""], label), (found.devices["a"], device)):
        np.testing.assert_allclose(kept, given, **halves)
    for (weight, bias), given in zip(found.layers, weights, strict=True):
        np.testing.assert_allclose(bias, given[0], **halves)
        assert (np.abs(weight - given) <= 1.1 * np.abs(given).max(axis=0) / 254.0).all()
    assert (found.sigma_of("aten::mm"), found.device_numbers) == ((0.1, 0.2), 2)
    again = written([weight for weight, _ in found.layers])["layers"]
    assert [layer["weight"] for layer in again] == [layer["weight"] for layer in written(weights)["layers"]]


def test_an_op_starts_as_its_closest_name_does_and_an_unknown_one_once() -> None:
    starts = cpu_document()["starts"]["matmul"]
    assert cpu_starts("matmul", ("aten::mm",)) == starts["aten::mm"]
    assert cpu_starts("matmul", ("aten::mm.no_such_kernel", "aten::bmm", "aten::mm")) == starts["aten::bmm"]
    assert cpu_starts("matmul", ("mine::op",)) == cpu_starts("quantized", ("aten::mm",)) == 1.0


@pytest.fixture
def _without_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    cached = cpu_document, cpu_network, cpu_class_families
    monkeypatch.setattr(module, "CPU_FILE", tmp_path / "none.json")
    for each in cached:
        each.cache_clear()
    yield
    for each in cached:
        each.cache_clear()


@pytest.mark.usefixtures("_without_the_file")
def test_without_the_file_physics_stand_alone() -> None:
    assert (cpu_edition(), cpu_network("matmul"), cpu_class_families("arm")) == (0, None, {})
    (seconds,), _, (source,) = CostModel(device()).price_works([matmul(100)])
    assert seconds == pytest.approx(1e-6 + 2e6 / 1e11)
    assert source == "physics"

"""What is learnt of ops on CPUs and shipped: its file, its networks, and what it says of machines and kinds of CPU."""

from __future__ import annotations

import numpy as np
from priced import RATES

from placer.pricing import FAMILIES, feature_names, is_current
from placer.pricing.networks import (
    Network,
    cpu_class_families,
    cpu_document,
    cpu_edition,
    cpu_network,
)
from placer.profile import Device, cpu_kinds, load, shipped

NETWORKS = {name: cpu_network(name) for name in cpu_document()["networks"]}
#: FLOPs and bytes stand before a family's features, what physics say of arithmetic and traffic after them.
MORE_INPUTS = 4


def network_of(family: str) -> Network:
    found = NETWORKS[family]
    assert found is not None
    return found


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
        fits = load(name).fits
        assert set().union(*(fit.families for fit in fits)) == set(NETWORKS), name
        assert all(map(is_current, fits)), name
    kinds = cpu_document()["classes"]
    assert set(kinds) <= set(cpu_kinds())
    for kind in kinds:
        families = cpu_class_families(kind)
        assert families
        assert is_current(Device("cpu", 1, RATES, families, {}, {}, edition=cpu_edition())), kind
    assert cpu_class_families("no such kind") == {}

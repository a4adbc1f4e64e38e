"""What is learnt of ops and shipped: its files, its networks, and what they say of machines, kinds of CPU and GPUs."""

from __future__ import annotations

import json

import numpy as np
import pytest
from priced import RATES

from placer.pricing import FAMILIES, feature_names, is_current
from placer.pricing.gpu import device_model, edition
from placer.pricing.networks import Network, cpu_class_families, cpu_document, cpu_edition, cpu_network
from placer.profile import Device, cpu_kinds, gpus, load, shipped

CPU_NETWORKS = {family: cpu_network(family) for family in cpu_document()["networks"]}
#: FLOPs and bytes stand before a family's features, what physics say of arithmetic and traffic after them.
MORE_INPUTS = 4


@pytest.mark.parametrize("network", [*CPU_NETWORKS.values(), *device_model.networks().values()])
def test_every_network_is_sane(network: Network) -> None:
    assert len({len(each) for each in (network.low, network.high, network.mean, network.scale)}) == 1
    assert {len(numbers) for numbers in network.devices.values()} == {network.device_numbers}
    assert "" in network.labels
    assert "" in network.sigma
    assert all(0.0 < known <= unknown < 1.5 for known, unknown in network.sigma.values())
    layers = [array for pair in network.layers for array in pair]
    arrays = [network.low, network.high, network.mean, *layers, *network.labels.values(), *network.devices.values()]
    assert all(np.isfinite(array).all() for array in arrays)
    assert ((network.scale > 0.0) & (network.low <= network.high)).all()


def test_every_family_but_those_without_samples_has_a_network_of_cpus() -> None:
    assert set(FAMILIES) - set(CPU_NETWORKS) == {"quantized"}
    for family, network in CPU_NETWORKS.items():
        assert network is not None
        assert len(network.low) == len(feature_names(family)) + MORE_INPUTS, family
        assert all(start > 0.0 for start in cpu_document()["starts"][family].values()), family


def test_gpus_of_the_file_are_in_the_catalog() -> None:
    document = json.loads(device_model.FILE.read_text(encoding="utf-8"))
    rows, ranges = document["rows"], document["ranges"]
    named = {name for network in device_model.networks().values() for name in network.devices}
    assert named == set(rows) == set(ranges) <= set(gpus())
    limits = [limit for kinds in ranges.values() for names in kinds.values() for limit in names.values()]
    assert all(low <= high for low, high in limits)
    assert edition() > 0.0


def test_machines_and_kinds_of_cpu_have_numbers_of_these_networks() -> None:
    assert cpu_edition() > 0
    for name in shipped():
        fits = load(name).fits
        assert set().union(*(fit.families for fit in fits)) == set(CPU_NETWORKS), name
        assert all(map(is_current, fits)), name
    kinds = cpu_document()["classes"]
    assert set(kinds) <= set(cpu_kinds())
    for kind in kinds:
        families = cpu_class_families(kind)
        assert families
        assert is_current(Device("cpu", 1, RATES, families, {}, {}, edition=cpu_edition())), kind
    assert cpu_class_families("no such kind") == {}

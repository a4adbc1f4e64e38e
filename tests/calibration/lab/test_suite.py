"""The networks of the suites: what they are, and that they run, train and can be traced."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from placer.calibration.lab.suite import SUITES, entries, entries_by_name
from placer.calibration.measuring.step import Step, make_optimizer
from placer.calibration.suite import Entry
from placer.tracing import trace
from placer.workload import make_workload

FULL = entries("full")
#: Hundreds of MB of random weights: built and run by the validation itself, too heavy here.
HEAVY = {"bert_base", "gpt2_small"}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def test_every_suite_is_a_part_of_the_full_one_whose_names_are_unique() -> None:
    assert max(Counter(entry.name for entry in (*FULL, *entries("held-out"))).values()) == 1
    assert len(FULL) >= 40
    assert 6 <= len(entries("quick")) <= 10
    assert all(set(entries(suite)) <= set(FULL) for suite in ("quick", "reference"))
    assert {entry.name for suite in SUITES for entry in entries(suite)} <= set(entries_by_name())
    assert all(entry.missing() == () for entry in FULL), "install torch-placer[suite]"
    with pytest.raises(ValueError, match=r"'fast'.*quick, reference, full"):
        entries("fast")


@pytest.mark.parametrize("entry", [e for e in FULL if e.name not in HEAVY], ids=lambda entry: entry.name)
def test_every_network_infers_and_trains_one_step(entry: Entry) -> None:
    model = entry.build()
    for mode in entry.modes:
        workload = make_workload(
            model, batch=entry.example(entry.batches[0]), mode=mode, loss=entry.loss, optimizer=entry.optimizer
        )
        step = Step(workload, "cpu", make_optimizer(model, entry.optimizer) if mode == "train" else None)
        step.prepare()
        assert model.training == (mode == "train")
        step()
    trained = [p for p in model.parameters() if p.grad is not None]
    assert trained or "train" not in entry.modes
    assert all(torch.isfinite(p).all() for p in trained)


@pytest.mark.parametrize("entry", [e for e in FULL if e.name in HEAVY], ids=lambda entry: entry.name)
def test_heavy_networks_trace_without_weights(entry: Entry) -> None:
    with torch.device("meta"):
        model = entry.build()
    workload = make_workload(model, batch=entry.example(1), mode="infer")
    assert trace(workload).parameter_bytes > 4e8

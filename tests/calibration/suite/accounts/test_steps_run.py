"""The accounts' recurrent, audio and graph networks and small image networks really take a step, on the CPU."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from placer.calibration.measuring.step import make_optimizer
from placer.calibration.suite.accounts import Account, Part, accounts
from placer.calibration.suite.accounts.scattering import Scattering, wavelets
from placer.tracing import trace
from placer.workload import make_workload

#: Whose first point takes seconds for real: these are traced without values.
HEAVY = {"carrot-rnnlm-lstmcell", "kymatio-93", "kevinyang8-bert", "keras-applications-table", "cvbenchmarks-xeon"}
FAMILIES = ("audio", "graph_networks", "liquid", "recurrent", "small_cnn", "transformer", "big_cnn")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def family(part: Part) -> str:
    return part.example.__module__.rpartition(".")[2]


ACCOUNTS = [account for account in accounts() if family(account.points[0].parts[-1]) in FAMILIES]
LIGHT = [a for a in ACCOUNTS if a.id not in HEAVY and not a.id.startswith("jcjohnson")]


@pytest.mark.parametrize("account", ACCOUNTS, ids=lambda account: account.id)
def test_the_first_point_is_traced(account: Account) -> None:
    for part in account.points[0].parts:
        workload = make_workload(
            part.model(), example=part.example(), mode=part.mode, loss=part.loss,
            optimizer=part.optimizer if part.mode == "train" else None, data=part.data,
        )  # fmt: skip
        assert trace(workload).calls


@pytest.mark.parametrize("account", LIGHT, ids=lambda account: account.id)
def test_a_step_of_the_first_point_runs(account: Account) -> None:
    torch.manual_seed(0)
    for part in account.points[0].parts:
        model, example = part.model(), part.example()
        if part.mode == "infer":
            with torch.no_grad():
                model.eval()(*example)
            continue
        assert part.loss is not None
        assert isinstance(part.optimizer, str)
        before = [parameter.clone() for parameter in model.parameters()]
        optimizer = make_optimizer(model, part.optimizer)
        part.loss(model.train()(*example)).backward()
        optimizer.step()
        assert any(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


def test_scattering_is_an_average_of_moduli() -> None:
    transform = Scattering(12, 4, 8)
    time = torch.arange(2**12)
    tone = torch.sin(2 * torch.pi * transform.first[3].centre * time)[None]
    found = transform(tone)[0]
    assert found.shape[1] == 2**8
    # Away from the ends, the average of a tone is nothing; the modulus that the wavelet of its frequency leaves, half.
    assert found[0, 16:-16].abs().max() < 1e-3
    second = [sum(s.octave > f.octave for s in transform.second) for f in transform.first]
    row = 1 + sum(1 + second[i] for i in range(3))
    assert found[row].mean().item() == pytest.approx(0.5, rel=0.05)
    assert found.shape[0] == 1 + len(transform.first) + sum(second)


def test_wavelets_are_spaced_geometrically_down_to_the_average() -> None:
    bank = wavelets(10, 8)
    ratios = [later.centre / earlier.centre for earlier, later in pairwise(bank[:-7])]
    assert ratios == pytest.approx([2 ** (-1 / 8)] * len(ratios))
    assert all(earlier.octave <= later.octave for earlier, later in pairwise(bank))

"""A minute on a modelled machine of many cores measures the numbers of threads that matter, and tuning uses them."""

from __future__ import annotations

import pytest
from simulated.many_cores import ManyCores, stack

import placer
from placer.calibration import fitting
from placer.calibration.probing import targets, thread_counts
from placer.calibration.runner import FIT_SHARE, fit_share
from placer.profile import Profile
from placer.tracing import trace
from placer.workload import make_workload

BUDGET = 60.0


@pytest.mark.parametrize(("cores", "counts"), [
    (1, (1,)), (4, (1, 4)), (6, (1, 2, 6)), (16, (1, 4, 16)), (64, (1, 8, 64)),
])  # fmt: skip
def test_one_thread_all_and_one_number_between(
    cores: int, counts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.get_num_threads", lambda: cores)
    assert thread_counts(cores) == counts
    planned = targets(("cpu",), quick=False)
    assert sorted(target.threads for target in planned) == list(counts)
    assert planned[0].threads == cores
    assert all(target.share <= 0.31 * planned[0].share for target in planned[1:])
    assert fit_share(planned) == pytest.approx(max(FIT_SHARE, 0.1 * len(counts)))
    assert [target.threads for target in targets(("cpu",), quick=True)] == [cores]


@pytest.fixture(scope="module")
def machine() -> ManyCores:
    return ManyCores(64)


@pytest.fixture(scope="module")
def calibrated(machine: ManyCores, tmp_path_factory: pytest.TempPathFactory) -> Profile:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "shipped_references", tuple)  # what a minute teaches alone; such fits are faster, too
        return machine.calibrated(tmp_path_factory.mktemp("many") / "profile.json", patch, BUDGET)


def test_each_number_has_enough_probes_in_time(machine: ManyCores, calibrated: Profile) -> None:
    assert calibrated.threads("cpu") == (1, 8, 64)
    assert calibrated.complete
    assert machine.clock.now < BUDGET
    assert min(machine.measured.values()) >= 25
    assert max(machine.measured, key=machine.measured.__getitem__) == 64


@pytest.mark.parametrize(("width", "rows", "best"), [(64, 256, 8), (1024, 2048, 64)], ids=["tiny", "big"])
@pytest.mark.parametrize("mode", ["train", "infer"])
def test_tuning_picks_what_is_fastest(
    machine: ManyCores, calibrated: Profile, width: int, rows: int, best: int, mode: str
) -> None:
    network, batch = stack(width, 3), (rows, width)
    step = trace(make_workload(network, batch, mode=mode))
    truth = {count: machine.step_seconds(step, count) for count in (1, 8, 64)}
    assert min(truth, key=truth.__getitem__) == best
    decision = placer.explain(
        network, batch, mode=mode, profile=calibrated, options=placer.Options(threads="tune"), devices=["cpu"]
    ).decision  # fmt: skip
    assert [option.threads for option in decision.thread_options] == [1, 8, 64]
    assert decision.threads == best
    every = min(machine.step_seconds(step, count) for count in range(1, 65))
    assert truth[best] < 1.15 * every

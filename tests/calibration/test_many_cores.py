"""A minute on a modelled machine of many cores measures the numbers of threads that matter, and tuning uses them."""

from __future__ import annotations

import pytest
from simulated.many_cores import ManyCores, stack

import placer
from placer.calibration.probing import targets, thread_counts
from placer.pricing import predict
from placer.profile import Profile
from placer.tracing import trace
from placer.workload import make_workload

BUDGET = 60.0


@pytest.mark.parametrize(
    ("cores", "counts"),
    [
        (1, (1,)),
        (4, (1, 4)),
        (6, (1, 2, 6)),
        (16, (1, 4, 16)),
        (64, (1, 8, 64)),
    ],
)
def test_one_thread_all_and_one_number_between(
    cores: int, counts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.get_num_threads", lambda: cores)
    assert thread_counts(cores) == counts
    planned = targets(("cpu",), quick=False)
    assert sorted(target.threads for target in planned) == list(counts)
    assert planned[0].threads == 1  # by which all others are priced
    assert all(target.share <= 0.31 * planned[0].share for target in planned[1:])
    assert {target.threads for target in targets(("cpu",), quick=True)} == {1, cores}


@pytest.fixture(scope="module")
def machine() -> ManyCores:
    return ManyCores(16)


@pytest.fixture(scope="module")
def calibrated(machine: ManyCores, tmp_path_factory: pytest.TempPathFactory) -> Profile:
    with pytest.MonkeyPatch.context() as patch:
        found = machine.calibrated(tmp_path_factory.mktemp("many") / "profile.json", patch, BUDGET)
    assert machine.clock.now < BUDGET
    assert found.complete
    assert found.threads("cpu") == thread_counts(machine.cores)
    return found


@pytest.mark.parametrize(("width", "rows"), [(64, 256), (1024, 2048)], ids=["tiny", "big"])
@pytest.mark.parametrize("mode", ["train", "infer"])
def test_any_number_is_priced_by_one_core_and_tuning_picks_the_fastest(
    machine: ManyCores, calibrated: Profile, width: int, rows: int, mode: str
) -> None:
    """Numbers that were measured, and one that was not: the model of the machine is none that pricing knows."""
    network, batch = stack(width, 3), (rows, width)
    step = trace(make_workload(network, batch, mode=mode))
    truth = {threads: machine.step_seconds(step, threads) for threads in (1, 4, 8, machine.cores)}
    for threads, seconds in truth.items():
        predicted = predict(step, calibrated, devices=("cpu",), threads=threads)["cpu"].step_seconds
        assert predicted == pytest.approx(seconds, rel=0.6)
    decision = placer.explain(
        network, batch, mode=mode, profile=calibrated, options=placer.Options(threads="tune"), devices=["cpu"]
    ).decision
    assert [option.threads for option in decision.thread_options] == list(calibrated.threads("cpu"))
    assert truth[decision.threads] < 1.25 * min(truth[count] for count in calibrated.threads("cpu"))

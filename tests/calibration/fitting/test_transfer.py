"""What a machine measured at length teaches one that was measured in passing, and which machine that is."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from placer import profile
from placer.calibration.fitting import expectations, of_nearest_pace, shipped_references
from placer.calibration.fitting.device import fit_device, predict_step
from placer.calibration.fitting.moments import Moments
from placer.calibration.fitting.transfer import (
    OTHER_CLASS,
    ComparedOps,
    Comparison,
    Difference,
    Expectation,
    compare,
    work_at,
)
from placer.calibration.measuring.journal import StepObservation
from placer.pricing import FAMILIES, CostModel, foreign_family, framework_seconds, inputs_of, op_label
from placer.profile import DeviceFit, FamilyFit, Profile, store

from .made_up import FRAMEWORK, RATES, slower, steps

RECORD = Path(__file__).parents[3] / "calibration" / "records" / "cpu-2-core" / "profile.json.xz"


def taught(here: list[StepObservation], reference: DeviceFit, **machine: bool) -> DeviceFit:
    return fit_device(here, RATES, device="cpu", threads=2, expected=Expectation(reference, **machine))


def error(fit: DeviceFit, held: list[StepObservation]) -> float:
    model = CostModel(fit)
    return float(np.median([abs(math.log(predict_step(s, model)[0] / s.seconds)) for s in held]))


def ratio(fit: DeviceFit, held: list[StepObservation], *families: str) -> float:
    """The median of predicted over measured times of the ops of these families."""
    ops = [op for step in held for op in step.ops if op.family in families]
    seconds, _, _ = CostModel(fit).price_works([op.work() for op in ops])
    return float(np.median([price / (op.seconds or 0.0) for price, op in zip(seconds, ops, strict=True)]))


def test_few_steps_and_a_reference_are_worth_more_than_few_steps(reference: DeviceFit) -> None:
    here, unseen = (slower(steps(n, seed), matmul=1.8, elementwise=1.1) for n, seed in ((4, 7), (100, 8)))
    alone = fit_device(here, RATES, device="cpu", threads=2)
    assert error(taught(here, reference), unseen) < 0.5 * error(alone, unseen)


def test_a_family_never_measured_here_is_priced_at_this_machines_pace(reference: DeviceFit) -> None:
    both = slower(steps(60, 7), matmul=1.5, elementwise=1.5)
    fit = taught([s for s in both if all(op.family == "elementwise" for op in s.ops)], reference)
    assert ratio(fit, steps(20, 9), "matmul") == pytest.approx(1.5, rel=0.1)
    _, sigma, _ = CostModel(fit).price_works([op.work() for s in steps(20, 9) for op in s.ops if op.family == "matmul"])
    assert min(sigma) > 0.1  # and that it is a guess is known


def test_many_steps_outweigh_a_reference_that_is_wrong(reference: DeviceFit) -> None:
    here, unseen = (slower(steps(n, seed), matmul=6.0, elementwise=0.3) for n, seed in ((160, 10), (100, 8)))
    assert error(taught(here, reference), unseen) < 0.08


def test_a_machine_of_the_same_class_keeps_what_the_other_knows(reference: DeviceFit) -> None:
    fit = taught(slower(steps(30, 7), matmul=1.1, elementwise=1.1), reference, same_class=True)
    for name, known in reference.families.items():
        found = fit.families[name]
        assert np.array_equal(found.x, known.x)
        assert (found.length_scales, found.parameters) == (known.length_scales, known.parameters)
        assert 0.0 < np.median(found.y - known.y) < math.log(1.1)  # a minute's difference is believed in part


def test_the_framework_of_another_class_goes_at_its_own_pace(reference: DeviceFit) -> None:
    own = {name: 3.0 * cost for name, cost in FRAMEWORK.items()}
    here = [
        replace(step, seconds=step.seconds + sum((own[n] - FRAMEWORK[n]) * count for n, count in step.counts.items()))
        for step in steps(40, 7)
    ]
    misled = {**RATES, "dispatch_seconds": 9.0 * RATES["dispatch_seconds"]}  # timed in a moment that was not the usual
    fit = fit_device(here, misled, device="cpu", threads=2, expected=Expectation(reference))
    found = framework_seconds(here[0].counts, fit.framework)
    assert found == pytest.approx(framework_seconds(here[0].counts, own), rel=0.15)


# --- two machines compared over all ops ---------------------------------------------------------------------------


def seen(
    reference: DeviceFit, factor: float, *, count: int = 400, moments: Moments | None = None, **own: float
) -> Comparison:
    """A machine of the reference's class that takes ``factor`` times as long, seen in so many steps."""
    observed = slower(steps(60, 7), **{"matmul": factor, "elementwise": factor, **own})
    ops = [op for step in observed for op in step.ops]
    return compare(ops, Expectation(reference, same_class=True), count, moments or Moments())


def trust(found: Comparison) -> float:
    return found.believed / found.pace


def test_the_further_off_a_minute_is_the_more_of_it_lasts(reference: DeviceFit) -> None:
    near, further, far = (seen(reference, factor) for factor in (1.05, 1.25, 1.6))
    assert trust(near) < trust(further) < trust(far) < 1.0
    assert trust(near) == pytest.approx(trust(seen(reference, 1 / 1.05)), rel=0.1)
    assert trust(seen(reference, 1.25, count=40)) < trust(further)  # a few seconds say less than a minute
    slower_steps = seen(reference, 1.25, moments=Moments(pace=0.5))  # what is between the ops is slower still
    assert slower_steps.pace == further.pace
    assert slower_steps.believed == pytest.approx(0.5, rel=0.1)
    assert far.prior.family_pace > near.prior.family_pace  # each family in its own way


def test_a_machine_far_off_or_whose_families_go_their_own_ways_is_of_another_class(reference: DeviceFit) -> None:
    for factor, own in ((0.3, {}), (2.4, {}), (1e6, {}), (1.6, {"elementwise": 1.0})):
        found = seen(reference, factor, **own)
        assert (found.prior, found.believed, found.same_class) == (OTHER_CLASS, found.pace, False)


# --- op by op -----------------------------------------------------------------------------------------------------

KNOWN = FamilyFit(
    feature_names=("flops", "bytes"), ops=("aten::mm",), x=((10.0, 10.0),), op_index=(0,), y=(0.0,), point_noise=(0.0,),
    length_scales=(4.0, 4.0), op_scale=1.0, mean=0.0, signal=0.2, noise=0.01, parameters={}, measured=1,
)  # fmt: skip


def shapes(count: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).uniform(5.0, 25.0, (count, 2))


def difference(
    times: np.ndarray, moments: np.ndarray | None = None, *, pace: float = 0.0, prior: object = OTHER_CLASS
) -> Difference:
    """Of ops that take so many times as long, with 3 % of noise each."""
    n = len(times)
    noisy = np.log(times) + np.random.default_rng(0).normal(0.0, 0.03, n)
    when = 50.0 * np.arange(float(n)) if moments is None else moments
    points = ComparedOps(shapes(n), np.zeros(n, dtype=np.int64), noisy, np.full(n, 1e-4), when)
    return Difference(points, KNOWN, pace, prior)  # type: ignore[arg-type]


def at(found: Difference, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return found.predict(x, np.zeros(len(x), dtype=np.int64))


# --- what another machine's fit says ------------------------------------------------------------------------------


def test_an_op_is_recovered_from_its_regression_inputs_and_its_label() -> None:
    for family, fit in profile.load(RECORD).fit("cpu", 2).families.items():
        rows = dict(zip(fit.op_index.tolist(), fit.x.tolist(), strict=True))  # one of every op, variant and dtype
        for op, row in rows.items():
            work = work_at(family, fit.ops[op], row)
            assert inputs_of(work) == pytest.approx(row, abs=1e-6)
            assert op_label(work) == fit.ops[op]
            assert work_at(family, op_label(work), inputs_of(work)) == work  # to the last register


# --- which shipped profile a calibration builds on ----------------------------------------------------------------

MACHINE = {"cpu": "Some CPU", "cores": 2, "torch": "2.13.0+cpu"}


@pytest.fixture(scope="module")
def real() -> Profile:
    """A profile small enough to be saved often."""
    found = profile.load(profile.shipped()[0], samples=False)
    some = {"matmul": found.fit("cpu", 2).families["matmul"]}
    return replace(found, fits=tuple(replace(fit, families=some) for fit in found.fits))


@pytest.fixture
def folder(tmp_path: Path, real: Profile, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Shipped profiles: one of this machine's class, one of another processor."""
    monkeypatch.setattr(store, "shipped_folder", lambda: tmp_path)
    for name, changes in (("alike", {"torch": "2.13.1"}), ("other", {"cpu": "Another CPU", "cores": 64})):
        profile.save(replace(real, fingerprint={**MACHINE, **changes}), tmp_path / f"{name}.json")
    return tmp_path


def expected(device: str = "cpu", **changes: object) -> tuple[str, bool] | None:
    found = expectations(shipped_references(), device, 2, {**MACHINE, **changes})
    return (found[0].name, found[0].same_class) if found else None


def test_the_most_similar_machine_is_taken(folder: Path, real: Profile) -> None:
    assert expected() == ("alike", True)
    assert expected(cpu="Another CPU", cores=48) == ("other", False)
    for changes in ({"cores": 4}, {"torch": "2.11.0"}, {"cpu": "Never Seen", "cores": 2}):
        assert expected(**changes) == ("alike", False)
    assert expected(device="cuda") is None
    (found,) = expectations(shipped_references(), "cpu", 1, MACHINE)
    assert found.fit.threads == 1
    # CPUs of one name are told apart.
    (folder / "alike.json").unlink()
    versions = {"AVX2": "family 25 model 1", "AVX512": "family 25 model 17"}
    for words, version in versions.items():
        facts = {**MACHINE, "cpu_instructions": words, "cpu_version": version}
        profile.save(replace(real, fingerprint=facts), folder / f"with-{words}.json")
    for words, version in versions.items():
        assert expected(cpu_instructions=words, cpu_version=version) == (f"with-{words}", True)
    assert expected(cpu_instructions="AVX512", cpu_version="family 26 model 2") == ("with-AVX512", False)


def test_of_ones_own_class_the_one_of_the_nearest_pace_is_taken(folder: Path, reference: DeviceFit) -> None:
    profile.save(profile.load("alike"), folder / "alike-busy.json")
    assert [found.name for found in expectations(shipped_references(), "cpu", 2, MACHINE)] == ["alike", "alike-busy"]
    slow = taught(slower(steps(160, 7), matmul=1.8, elementwise=1.8), reference)
    known = [Expectation(fit, same_class=True, name=name) for name, fit in (("quiet", reference), ("busy", slow))]
    for factor, name in ((1.1, "quiet"), (1.6, "busy")):
        nearest = of_nearest_pace(known, slower(steps(60, 8), matmul=factor, elementwise=factor), 0.15)
        assert nearest is not None
        assert nearest.name == name
    assert of_nearest_pace([], steps(60, 8), 0.15) is None


def test_a_profile_of_another_version_is_passed_over(folder: Path) -> None:
    found = profile.load("alike")
    first = found.fits[0]
    renamed = replace(first.families["matmul"], feature_names=("old",) * len(first.families["matmul"].feature_names))
    profile.save(replace(found, fits=(replace(first, families={"matmul": renamed}),)), folder / "alike.json")
    assert expected() == ("other", False)


@pytest.mark.parametrize("name", profile.shipped())
def test_what_is_shipped_has_todays_features_and_was_learnt_from_no_other(name: str) -> None:
    found = profile.load(name)
    for fit in found.fits:
        assert foreign_family(fit) is None
        assert set(FAMILIES) >= set(fit.families)
        assert fit.reference == ""
    assert found.complete
    assert not found.samples

"""Fitting, on a made-up truth: operators and sums of operators teach more than physics know, and the file says it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from placer.calibration.lab.published import fit
from placer.calibration.lab.published.fit import document, fit_to, main, ranges
from placer.calibration.lab.published.samples import Sample, Table
from placer.calibration.lab.published.training import Trainer
from placer.pricing.gpu import LAUNCH, device_model
from placer.pricing.gpu.device_model import DeviceModel
from placer.profile import find_gpu

from .synthetic import GPUS, elementwise, op_sample, physics, product, row, small_world, truth

#: What half precision, in which the file has numbers, changes of a price at the most.
HALF = 2e-3
SIGMA = {"product": {"": (0.1, 0.25)}, "memory": {"": (0.12, 0.3), "elementwise:mul": (0.2, 0.4)}}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Where fits give the same numbers again; put back by the fixtures of all tests."""
    torch.set_num_threads(1)


@cache
def world() -> tuple[list[Sample], list[Sample]]:
    """(what is fitted to, what is not).

    The last four of the latter: large ops, a GPU and an op that no fit sees.
    """
    others = [
        op_sample(elementwise("mul", 2**24), "Tesla T4"),
        op_sample(elementwise("add", 2**24), "Tesla T4"),
        op_sample(product(512, 512, 512), "NVIDIA L4"),
        op_sample(elementwise("sub", 8192), GPUS[0]),
    ]
    return small_world(0), [*small_world(1, use="held out"), *(dataclasses.replace(s, use="check") for s in others)]


def trained(samples: Sequence[Sample], epochs: int, seed: int = 0) -> Trainer:
    """Fitted to every seventh sample of those there are to fit to, where little is asked of it."""
    trainer = Trainer(samples, Table(samples))
    trainer.fit(fit_to(samples)[:: 1 if epochs > 10 else 7], epochs=epochs, seed=seed)
    return trainer


@cache
def fitted() -> Trainer:
    seen, unseen = world()
    return trained([*seen, *unseen], 100)


def roofline(sample: Sample) -> float:
    return sum(n * (LAUNCH + physics(each, sample.gpu)) for each, _, n in sample.rows)


@pytest.mark.parametrize("steps", [False, True], ids=["ops", "steps"])
def test_what_is_learnt_beats_physics_on_what_was_not_seen(steps: bool) -> None:
    numbers = [i for i, s in enumerate(fitted().samples) if s.use == "held out" and s.is_step == steps]
    held = [fitted().samples[i] for i in numbers]
    measured = np.array([sample.device_seconds for sample in held])
    alone = np.median(np.abs(np.array([roofline(sample) for sample in held]) / measured - 1.0))
    learnt = np.median(np.abs(fitted().predicted(numbers, known=True) / measured - 1.0))
    assert alone > 0.15
    assert learnt < 0.5 * alone


def test_a_step_teaches_an_op_that_nobody_published_alone() -> None:
    """Multiplications are in steps only, and take 1.6 times physics; additions take 2.2 times."""
    first = len(fitted().samples) - 4
    mul, add = fitted().predicted([first, first + 1], known=True)
    assert mul < 0.85 * add
    assert mul == pytest.approx(truth(row(elementwise("mul", 2**24)), "Tesla T4"), rel=0.3)


def test_the_same_seed_gives_the_same_numbers_whatever_is_not_fitted_to() -> None:
    seen, _ = world()
    few = [*seen[:300], *(dataclasses.replace(s, use="check") for s in seen[300:])]
    lies = [*few[:300], *(dataclasses.replace(s, seconds=17.0) for s in few[300:])]
    first, again, other = (
        trained(samples, 3, seed).predicted(range(50), known=True).tolist()
        for samples, seed in ((few, 1), (lies, 1), (few, 2))
    )
    assert first == again
    assert first != other


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of the fit, in place of the one that ships."""
    path = tmp_path / "published.json"
    monkeypatch.setattr(fit, "HALF_TRUSTED", 0.0)  # else an op is believed in part
    path.write_text(document(fitted(), fit_to(fitted().samples), SIGMA), encoding="utf-8")
    monkeypatch.setattr(device_model, "FILE", path)
    for cached in (device_model.networks, device_model.document):
        cached.cache_clear()
    yield path
    for cached in (device_model.networks, device_model.document):
        cached.cache_clear()


def priced(number: int) -> tuple[float, float]:
    sample = fitted().samples[number]
    ((each, dtype, _),) = sample.rows
    model = DeviceModel(find_gpu(sample.gpu))
    seconds, sigma = model.price_rows(each.kind, dtype, [each], [model.source(each, dtype, physics=False)])
    return float(seconds[0]), float(sigma[0])


@pytest.mark.usefixtures("written")
def test_what_is_written_predicts_what_the_fit_predicts() -> None:
    numbers = [i for i in fit_to(fitted().samples) if not fitted().samples[i].is_step]
    expected = fitted().predicted(numbers, known=True)
    assert [priced(i)[0] for i in numbers] == pytest.approx(expected, rel=HALF)


@pytest.mark.usefixtures("written")
def test_a_gpu_that_was_not_fitted_to_is_predicted_without_numbers() -> None:
    number = len(fitted().samples) - 2
    seconds, sigma = priced(number)
    assert seconds == pytest.approx(fitted().predicted([number], known=False)[0], rel=HALF)
    assert sigma == 0.25
    assert DeviceModel(find_gpu("NVIDIA L4")).provenance == "data sheet"
    assert DeviceModel(find_gpu("Tesla T4")).provenance == "published"


def test_what_the_file_holds(written: Path) -> None:
    text = written.read_text(encoding="utf-8")
    assert text == document(fitted(), fit_to(fitted().samples), SIGMA)
    assert text.endswith("}\n")
    content = json.loads(text)
    assert content["rows"] == dict.fromkeys(sorted(GPUS), 340)
    assert set(content["networks"]) == {"product", "memory"}
    found = device_model.networks()
    assert {name for each in found.values() for name in each.devices} == set(GPUS)
    # No number of an op that was not fitted to.
    assert set(found["memory"].labels) == {"elementwise:add", "elementwise:mul", "elementwise:", ""}
    assert found["memory"].sigma == SIGMA["memory"]
    assert [found["memory"].sigma_of(f"elementwise:{name}") for name in ("mul", "add")] == [(0.2, 0.4), (0.12, 0.3)]


def test_a_rebuild_writes_the_file_and_says_what_went_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fit, "read_samples", lambda cache: [s for each in world() for s in each])
    main(tmp_path, epochs=1, file=tmp_path / "published.json")
    path = tmp_path / "published.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    assert list(content) == ["edition", "rows", "ranges", "networks"]
    samples = [sample for each in world() for sample in each]
    assert content["ranges"] == json.loads(json.dumps(ranges(Table(samples), fit_to(samples))))
    shown = capsys.readouterr()
    assert "fitting to 1,020 of 2,044 samples" in shown.err
    assert "1,020 rows of made up" in shown.out

"""The file that ships: what is written is evaluated as the fit predicts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from placer.calibration.published import numbers_file
from placer.calibration.published.numbers_file import document, sources
from placer.calibration.published.samples import Table
from placer.calibration.published.training import Trainer
from placer.pricing.gpu import network
from placer.pricing.gpu.device_model import DeviceModel
from placer.profile import find_gpu

from .synthetic import GPUS, elementwise, op_sample, product, small_world

SIGMA = {"product": (0.1, 0.25), "memory": (0.12345678, 0.3)}


@pytest.fixture(scope="module")
def trainer() -> Trainer:
    others = op_sample(product(512, 512, 512), "NVIDIA L4"), op_sample(elementwise("sub", 8192), GPUS[0])
    samples = [*small_world(), *others]
    found = Trainer(samples, Table(samples))
    found.fit(range(len(samples) - 2), epochs=10)
    return found


@pytest.fixture
def written(trainer: Trainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of all samples but the last two, in place of the one that ships."""
    path = tmp_path / "published.json"
    monkeypatch.setattr(numbers_file, "HALF_TRUSTED", 0.0)  # else an op is believed in part
    path.write_text(document(trainer, range(len(trainer.samples) - 2), SIGMA), encoding="utf-8")
    monkeypatch.setattr(network, "FILE", path)
    network.networks.cache_clear()
    yield path
    network.networks.cache_clear()


@pytest.mark.usefixtures("written")
def test_what_is_written_predicts_what_the_fit_predicts(trainer: Trainer) -> None:
    numbers = [i for i, s in enumerate(trainer.samples[:-2]) if not s.is_step]
    expected = trainer.predicted(numbers, known=True)
    found = []
    for i in numbers:
        ((row, dtype, _),) = trainer.samples[i].rows
        found.append(float(DeviceModel(find_gpu(trainer.samples[i].gpu)).price_rows(row.kind, dtype, [row])[0][0]))
    assert np.array(found) == pytest.approx(expected, rel=1e-4)


@pytest.mark.usefixtures("written")
def test_a_gpu_that_was_not_fitted_to_is_predicted_without_numbers(trainer: Trainer) -> None:
    number = len(trainer.samples) - 2
    ((row, dtype, _),) = trainer.samples[number].rows
    seconds, sigma = DeviceModel(find_gpu("NVIDIA L4")).price_rows(row.kind, dtype, [row])
    assert seconds == pytest.approx(trainer.predicted([number], known=False), rel=1e-4)
    assert sigma.tolist() == [0.25]
    assert DeviceModel(find_gpu("NVIDIA L4")).provenance == "data sheet"
    assert DeviceModel(find_gpu("Tesla T4")).provenance == "published"


def test_what_the_file_holds(trainer: Trainer, written: Path) -> None:
    content = json.loads(written.read_text(encoding="utf-8"))
    assert content["rows"] == dict.fromkeys(sorted(GPUS), 340)
    assert set(content["networks"]) == {"product", "memory"}
    found = network.networks()
    assert {name for each in found.values() for name in each.gpus} == set(GPUS)
    # No number of an op that was not fitted to.
    assert set(found["memory"].labels) == {"elementwise:add", "elementwise:mul", "elementwise:", ""}
    assert found["memory"].sigma == (0.1235, 0.3)
    assert found["product"].layers[0][0].shape[1] == len(found["product"].layers[0][1])


def test_the_same_fit_is_the_same_file(trainer: Trainer) -> None:
    everything = range(len(trainer.samples))
    assert document(trainer, everything, SIGMA) == document(trainer, everything, SIGMA)
    assert document(trainer, everything, SIGMA).endswith("}\n")


def test_rows_by_source(trainer: Trainer) -> None:
    assert sources(trainer.samples, [0, 1, 2]) == {"made up": 3}

"""skorch fits where placer says, alone and inside scikit-learn's pipelines and searches."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from collector import functions_entered
from torch import nn

pytest.importorskip("skorch", reason="skorch is not installed")

from skorch import NeuralNetClassifier
from skorch.callbacks import Callback

import placer
from placer import tracing
from placer.integrations import skorch as integration


class Net(nn.Module):
    def __init__(self, units: int = 8) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, units), nn.ReLU(), nn.Dropout(), nn.Linear(units, 2), nn.Softmax(-1))

    def forward(self, X: torch.Tensor) -> torch.Tensor:  # noqa: N803
        return self.layers(X)


def data() -> tuple[Any, Any]:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(60, 6)).astype(np.float32)
    return x, (x.sum(1) > 0).astype(np.int64)


def net(**options: Any) -> Any:
    return NeuralNetClassifier(Net, max_epochs=3, batch_size=16, verbose=0, iterator_train__shuffle=True, **options)


def losses(fitted: Any) -> list[float]:
    return [float(loss) for loss in fitted.history[:, "train_loss"]]


@pytest.mark.filterwarnings("ignore::placer.PlacerWarning")
def test_a_fit_is_priced_by_epochs_also_without_a_calibration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = integration.job(net(), *data())
    counts = {part.name: part.count for part in made.parts}
    assert counts == {"training": 3, "validation": 1, "scores": 1}  # 48 rows after the split, 16 at a time
    assert made.repeats == 3  # epochs
    monkeypatch.setenv("PLACER_HOME", str(tmp_path / "home"))
    assert placer.choose(made, move=False).provenance == "published"


def test_a_step_is_all_that_fit_does_for_a_batch() -> None:
    """The Python that a real epoch enters for each batch is counted."""
    x, y = data()
    found = integration.job(net(), x, y)
    assert [part.workload.loading is None for part in found.parts] == [False, False, True]
    real = net(device="cpu").fit(x, y)
    training, _ = real.get_split_datasets(x, y)
    batches = list(real.get_iterator(training, training=True))
    real.notify("on_epoch_begin", dataset_train=training, dataset_valid=None)
    epoch = partial(real.run_single_epoch, batches, training=True, prefix="train", step_fn=real.train_step)
    entered = functions_entered(epoch)
    traced = tracing.trace(found.part("training").workload).python_calls
    assert traced == pytest.approx(entered / len(batches), rel=0.3)


def test_a_pipeline_chooses_when_it_is_fitted() -> None:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    x, y = data()
    torch.manual_seed(0)
    plain = make_pipeline(FunctionTransformer(np.tanh), net()).fit(x, y)
    torch.manual_seed(0)
    placed = make_pipeline(FunctionTransformer(np.tanh), net(callbacks=[integration.ChooseOnFit(devices="cpu")]))
    placed.fit(x, y)
    assert losses(placed[-1]) == losses(plain[-1])
    placement = dict(placed[-1].callbacks_)["ChooseOnFit"].placement_
    assert str(placement.device) == placed[-1].device == "cpu"
    assert np.array_equal(placed.predict(x), plain.predict(x))


@pytest.mark.parametrize("device", [torch.device("cpu"), "cpu:0", None])
def test_a_device_of_the_user_s_is_not_overruled(device: Any) -> None:
    """Whatever the options of the callback say. A string "cpu" is skorch's default, and so no choice of the user's."""
    x, y = data()
    fitted = net(device=device, callbacks=[integration.ChooseOnFit(devices=["cuda", "cpu"])]).fit(x, y)
    assert fitted.device is device
    assert dict(fitted.callbacks_)["ChooseOnFit"].placement_ is None


class Asking(NeuralNetClassifier):  # type: ignore[misc]
    """Its steps ask a callback of the user's."""

    def train_step_single(self, batch: Any, **given: Any) -> Any:
        assert dict(self.callbacks_)["mine"] is not None
        return super().train_step_single(batch, **given)


def test_a_net_that_needs_its_callbacks_still_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    def asking() -> Any:
        callbacks = [("mine", Callback()), integration.ChooseOnFit(devices="cpu")]
        return Asking(Net, max_epochs=1, batch_size=16, verbose=0, callbacks=callbacks)

    x, y = data()
    with pytest.warns(placer.PlacerWarning, match="placed on cpu without a prediction: .*KeyError"):
        fitted = asking().fit(x, y)
    placement = dict(fitted.callbacks_)["ChooseOnFit"].placement_
    assert (len(fitted.history), placement.decision.device, placement.confidence) == (1, "cpu", None)
    monkeypatch.setenv("PLACER_STRICT", "1")
    with pytest.raises(placer.PlacerError, match="KeyError"):
        asking().fit(x, y)


def test_what_is_no_net_is_refused() -> None:
    with pytest.raises(TypeError, match="must be a skorch NeuralNet, not Net"):
        integration.job(Net(), *data())

"""TabNet fits where placer says."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placer import tracing

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Device used"),
    pytest.mark.filterwarnings("ignore:No early stopping"),
    pytest.mark.filterwarnings("ignore::UserWarning:pytorch_tabnet"),
]


@pytest.fixture(scope="module")
def tab_model() -> Any:
    pytest.importorskip("pandas", reason="pandas, which pytorch-tabnet imports, is not installed")
    return pytest.importorskip("pytorch_tabnet.tab_model", reason="pytorch-tabnet is not installed")


def data() -> tuple[Any, Any]:
    x = np.random.default_rng(0).normal(size=(64, 5)).astype(np.float32)
    return x, np.where(x[:, 0] > 0, "yes", "no")


def fitted(tab_model: Any, x: Any, y: Any, **options: Any) -> list[float]:
    estimator = tab_model.TabNetClassifier(seed=1, verbose=0, n_steps=2, **options)
    estimator.fit(x, y, max_epochs=2, batch_size=32, virtual_batch_size=16, compute_importance=False)
    estimator.save_model("saved")  # writes the device's name
    return [float(loss) for loss in estimator.history["loss"]]


def test_fitting_ends_with_the_same_losses(tab_model: Any) -> None:
    from placer.integrations import pytorch_tabnet as integration

    x, y = data()
    without = fitted(tab_model, x, y, device_name="cpu")
    estimator = tab_model.TabNetClassifier(seed=1, verbose=0, n_steps=2)
    placement = integration.choose(estimator, x, y, batch_size=32, virtual_batch_size=16, max_epochs=2, devices="cpu")
    assert placement.confidence == 1.0
    workload, training = placement.explain().workload, placement.parts["training"].explain().workload
    assert (workload["parts"], workload["steps"]) == ({"training": 2}, 2)
    assert (training["optimizer"], training["inputs"]) == ("adam", ["32×5 float32", "32 int64"])
    assert not hasattr(estimator, "network")
    assert fitted(tab_model, x, y, device_name=str(placement.device)) == without


def test_an_epoch_has_all_that_fit_does_in_it(tab_model: Any) -> None:
    """Batches of a real epoch are those that the job counts, and so is the Python of a real batch."""
    from placer.integrations import pytorch_tabnet as integration

    x, y = data()
    sizes = {"batch_size": 16, "virtual_batch_size": 8}
    sets = [(x, y), (x[:20], y[:20])]
    found = integration.job(tab_model.TabNetClassifier(verbose=0, n_steps=2), x, y, eval_set=sets, **sizes)
    counts = {part.name: part.count for part in found.parts}
    assert counts == {"training": 4, "evaluation of val_0": 4, "evaluation of val_1": 2, "scores": 1}
    assert found.repeats == 100
    assert all(part.workload.loading.seconds > 0.0 for part in found.parts)

    entered: dict[str, list[int]] = {"_train_batch": [], "_predict_batch": []}
    estimator = tab_model.TabNetClassifier(verbose=0, n_steps=2, device_name="cpu")
    for name, numbers in entered.items():
        setattr(estimator, name, counted(getattr(estimator, name), numbers))
    estimator.fit(x, y, eval_set=sets, max_epochs=1, compute_importance=False, **sizes)
    assert (len(entered["_train_batch"]), len(entered["_predict_batch"])) == (4, 4 + 2)
    # The optimizer's own Python is a part of the update's price and not counted.
    trained, evaluated = (tracing.trace(found.part(name).workload).python_calls for name in list(counts)[:2])
    assert trained == pytest.approx(entered["_train_batch"][-1], rel=0.3)
    assert evaluated == pytest.approx(entered["_predict_batch"][0], rel=0.3)


def counted(method: Callable[..., Any], numbers: list[int]) -> Callable[..., Any]:
    """The same method; each call adds the number of Python functions that it entered."""

    def call(*given: Any) -> Any:
        numbers.append(0)

        def listen(frame: Any, event: str, argument: Any) -> None:
            numbers[-1] += event == "call"

        sys.setprofile(listen)
        try:
            return method(*given)
        finally:
            sys.setprofile(None)

    return call


def test_what_cannot_be_fitted_is_refused(tab_model: Any, tmp_path: Path) -> None:
    from placer.integrations import pytorch_tabnet as integration

    x, y = data()
    with pytest.raises(TypeError, match="must be a TabNetClassifier or TabNetRegressor, not "):
        integration.choose(tmp_path, x, y)
    with pytest.raises(ValueError, match=r"two dimensions, rows and features, not the shape \(64,\)"):
        integration.choose(tab_model.TabNetClassifier(verbose=0), x[:, 0], y)

"""TabNet fits where placer says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

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
    return [float(loss) for loss in estimator.history["loss"]]


def test_fitting_ends_with_the_same_losses(tab_model: Any) -> None:
    from placer.integrations import pytorch_tabnet as integration

    x, y = data()
    without = fitted(tab_model, x, y, device_name="cpu")
    estimator = tab_model.TabNetClassifier(seed=1, verbose=0, n_steps=2)
    placement = integration.choose(estimator, x, y, batch_size=32, virtual_batch_size=16, max_epochs=2, devices="cpu")
    assert placement.confidence == 1.0
    workload = placement.explain().workload
    assert (workload["optimizer"], workload["steps"], workload["inputs"]) == ("adam", 4, ["32×5 float32"])
    assert not hasattr(estimator, "network")
    assert fitted(tab_model, x, y, device_name=placement.device) == without


def test_a_regressor_too(tab_model: Any) -> None:
    from placer.integrations import pytorch_tabnet as integration

    x, _ = data()
    placement = integration.choose(tab_model.TabNetRegressor(verbose=0), x, x[:, :1], batch_size=32, devices="cpu")
    assert placement.confidence == 1.0


def test_what_cannot_be_fitted_is_refused(tab_model: Any, tmp_path: Path) -> None:
    from placer.integrations import pytorch_tabnet as integration

    x, y = data()
    with pytest.raises(TypeError, match="must be a TabNetClassifier or TabNetRegressor, not "):
        integration.choose(tmp_path, x, y)
    with pytest.raises(ValueError, match=r"two dimensions, rows and features, not the shape \(64,\)"):
        integration.choose(tab_model.TabNetClassifier(verbose=0), x[:, 0], y)

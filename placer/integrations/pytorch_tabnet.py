"""pytorch-tabnet: ``TabNetClassifier(device_name=...)``.

>>> placement = choose(TabNetClassifier(), X, y, batch_size=1024)
>>> model = TabNetClassifier(device_name=placement.device)
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor

import placer
from placer.answer import Placement
from placer.decision import same_randomness


def choose(
    estimator: Any,
    X: Any,  # noqa: N803 - scikit-learn's own name
    y: Any,
    *,
    batch_size: int = 1024,
    virtual_batch_size: int = 128,
    max_epochs: int = 100,
    **workload: Any,
) -> Placement:
    """Predict where ``estimator`` (a TabNetClassifier or TabNetRegressor) fits ``X`` and ``y`` fastest.

    ``batch_size``, ``virtual_batch_size`` and ``max_epochs`` are those of ``fit``. One step is the estimator's own: its
    network, loss, sparsity penalty and optimizer. The estimator is only read, nothing is moved. ``workload``: other
    arguments of ``placer.choose``.

    Raises:
        ValueError, TypeError: a wrong argument.
    """
    if not hasattr(estimator, "_set_network"):
        raise TypeError(f"estimator must be a TabNetClassifier or TabNetRegressor, not {type(estimator).__name__}")
    rows = np.asarray(X, dtype=np.float32)
    if rows.ndim != 2:
        raise ValueError(f"X must have two dimensions, rows and features, not the shape {rows.shape}")
    with same_randomness(()):  # building the network seeds torch
        own = _prepared(estimator, rows, y, virtual_batch_size)
    batch = torch.tensor(rows[:batch_size])
    target = torch.tensor(np.asarray(own.prepare_target(np.asarray(y)[:batch_size]))).float()
    full = len(rows) // batch_size or 1  # fit drops the last, shorter batch
    workload.setdefault("steps", full * max_epochs)

    def loss(output: Any) -> Tensor:
        predicted, sparsity = output
        fitted: Tensor = own.compute_loss(predicted, target.to(predicted.device))
        total: Tensor = fitted - own.lambda_sparse * sparsity
        return total

    own._set_optimizer()
    return placer.choose(
        own.network, example=batch, mode="train", loss=loss, optimizer=own._optimizer, move=False, **workload
    )


def _prepared(estimator: Any, rows: Any, y: Any, virtual_batch_size: int) -> Any:
    """A copy with the network that ``fit`` would make, on the CPU."""
    own = copy.deepcopy(estimator)
    own.device = torch.device("cpu")
    own.input_dim = rows.shape[1]
    own.virtual_batch_size = virtual_batch_size
    own.loss_fn = own._default_loss
    own.update_fit_params(rows, np.asarray(y), [], 0)
    own._set_network()
    return own

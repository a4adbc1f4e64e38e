"""pytorch-tabnet: ``TabNetClassifier(device_name=...)``.

>>> placement = choose(TabNetClassifier(), X, y, batch_size=1024)
>>> model = TabNetClassifier(device_name=str(placement.device))
"""

from __future__ import annotations

import contextlib
import copy
import math
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

import placer
from placer.integrations.loops import loading_between, mode_switch
from placer.workload import same_randomness

#: What ``job`` takes of the arguments of ``fit``.
_FIT = ("batch_size", "virtual_batch_size", "max_epochs", "eval_set")
#: Batches of each data set that the loaders are measured with.
_BATCHES = 8


def choose(estimator: Any, X: Any, y: Any, **options: Any) -> placer.JobPlacement:  # noqa: N803 - scikit-learn's name
    """Predict where ``estimator`` fits ``X`` and ``y`` fastest. Nothing is moved.

    ``options`` are those of ``job``, and other arguments of ``placer.choose``, as ``devices`` and ``profile``. Raises
    ValueError, TypeError for a wrong argument.
    """
    fit_options = {name: options.pop(name) for name in _FIT if name in options}
    return placer.choose(job(estimator, X, y, **fit_options), move=False, **options)


def job(
    estimator: Any,
    X: Any,  # noqa: N803
    y: Any,
    *,
    batch_size: int = 1024,
    virtual_batch_size: int = 128,
    max_epochs: int = 100,
    eval_set: Sequence[tuple[Any, Any]] | None = None,
) -> placer.Job:
    """An epoch of ``fit``: its batches, then those of each evaluation set. It repeats ``max_epochs`` times.

    Each step is the estimator's own code: network, loss, sparsity penalty, clipping, optimizer and callbacks. Its
    loaders are measured with the first batches. The estimator is only read. ``fit`` drops batches that are not full, so
    it trains on nothing where ``X`` has fewer rows than one: then a batch of these rows is priced. All arguments are
    those of ``fit``. Raises ValueError, TypeError for a wrong one.
    """
    if not hasattr(estimator, "_train_batch"):
        raise TypeError(f"estimator must be a TabNetClassifier or TabNetRegressor, not {type(estimator).__name__}")
    rows, labels = _rows("X", X), np.asarray(y)
    sets = [(_rows("X of eval_set", x), np.asarray(target)) for x, target in eval_set or ()]
    prepared = copy.deepcopy(estimator)
    prepared.device, prepared.verbose = torch.device("cpu"), 0
    with same_randomness(), warnings.catch_warnings(), contextlib.redirect_stdout(None):
        warnings.simplefilter("ignore")  # fit says the same
        prepared.fit(  # prepares all, and trains for no epoch
            rows,
            labels,
            eval_set=list(sets),
            max_epochs=0,
            patience=1,
            batch_size=batch_size,
            virtual_batch_size=virtual_batch_size,
            drop_last=len(rows) >= batch_size,
            compute_importance=False,
        )
        prepared._callback_container.on_train_begin()
        prepared._callback_container.on_epoch_begin(0)
        few = slice(_BATCHES * batch_size)
        heads = [(x[few], target[few]) for x, target in sets]
        training, evaluations = prepared._construct_loaders(rows[few], labels[few], heads)
        parts = [_training(prepared, training, count=len(rows) // batch_size or 1)]
        for number, (loader, (x, _)) in enumerate(zip(evaluations, sets, strict=True)):
            parts.append(_evaluation(prepared, f"val_{number}", loader, count=math.ceil(len(x) / batch_size)))
        if sets:
            parts.append(_scores(prepared, [target for _, target in sets]))
    return placer.Job(parts, repeats=max_epochs)


def _training(estimator: Any, loader: Any, count: int) -> placer.Part:
    switch = mode_switch(estimator.network)

    def step(features: Tensor, target: Tensor) -> None:
        switch(True)
        estimator._callback_container.on_batch_begin(0)
        estimator._callback_container.on_batch_end(0, estimator._train_batch(features, target))

    return placer.Part(
        "training",
        step,
        count=count,
        batch=tuple(next(iter(loader))),
        modules=estimator.network,
        loading=loading_between(loader, lambda batch: step(*batch)),
    )


def _evaluation(estimator: Any, name: str, loader: Any, count: int) -> placer.Part:
    switch = mode_switch(estimator.network)

    def step(features: Tensor) -> None:
        switch(False)
        estimator._predict_batch(features)

    return placer.Part(
        f"evaluation of {name}",
        step,
        count=count,
        batch=(next(iter(loader))[0],),
        modules=estimator.network,
        loading=loading_between(loader, lambda batch: step(batch[0])),
    )


def _scores(estimator: Any, targets: Sequence[Any]) -> placer.Part:
    """What follows the evaluation: metrics of each set, which are numpy's and are measured, and early stopping."""
    metrics = list(estimator._metric_container_dict.values())
    generator = np.random.default_rng(0)

    def scores(rows: int, outputs: Any) -> Any:
        if isinstance(outputs, list):  # of several tasks
            return [scores(rows, classes) for classes in outputs]
        return generator.normal(size=(rows, outputs)).astype(np.float32)

    evaluated = []
    for labels in targets:
        batches = [estimator.prepare_target(labels)], [scores(len(labels), estimator.output_dim)]
        evaluated.append(estimator.stack_batches(*batches))
    seconds = []
    for _ in range(3):  # the first call imports
        began = time.thread_time()
        for metric, (target, scored) in zip(metrics, evaluated, strict=True):
            estimator.history.epoch_metrics.update(metric(target, scored))
        seconds.append(time.thread_time() - began)

    def step(nothing: Tensor) -> None:
        estimator._callback_container.on_epoch_end(0, logs=estimator.history.epoch_metrics)

    return placer.Part("scores", step, batch=(torch.empty(0),), modules=estimator.network, loading=min(seconds))


def _rows(name: str, table: Any) -> Any:
    rows = np.asarray(table, dtype=np.float32)
    if rows.ndim != 2:
        raise ValueError(f"{name} must have two dimensions, rows and features, not the shape {rows.shape}")
    return rows

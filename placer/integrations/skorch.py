"""skorch: a callback that chooses when ``fit`` knows the data, also inside a scikit-learn pipeline.

Examples:
    >>> net = NeuralNetClassifier(Net, callbacks=[ChooseOnFit()])
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from sklearn.base import clone
from skorch.callbacks import Callback

import placer
from placer.integrations.loops import choose_job, first_batch, keep, loading_between
from placer.placement import all_or_nothing, move_modules, move_optimizer
from placer.workload import same_randomness


def job(net: Any, X: Any, y: Any = None) -> placer.Job:  # noqa: N803 - scikit-learn's own name
    """An epoch of ``fit``: its training batches, then its validation batches. It repeats ``max_epochs`` times.

    Each step is the net's own code, on a copy with the callbacks that every net has, and without others. Its loaders
    are measured with the first batches. ``net`` is only read.

    Raises:
        ValueError, TypeError: a wrong argument, or data without a batch, as of few rows with ``drop_last``. What the
            net's own code raises goes through.
    """
    if not callable(getattr(net, "get_iterator", None)):
        raise TypeError(f"net must be a skorch NeuralNet, not {type(net).__name__}")
    with same_randomness():  # the weights that fit will draw, and the order of its batches, stay the same
        prepared = clone(net).set_params(device="cpu", verbose=0, callbacks=None).initialize()
        prepared.check_data(X, y)
        training, validation = prepared.get_split_datasets(X, y)
        prepared.notify("on_train_begin", X=X, y=y)
        prepared.notify("on_epoch_begin", dataset_train=training, dataset_valid=validation)
        # Data in memory waits for nothing: other programs on this machine do not count.
        clock = time.perf_counter if isinstance(X, torch.utils.data.Dataset) else time.thread_time
        parts = [_part(prepared, "training", training, clock)]
        if validation is not None:
            parts.append(_part(prepared, "validation", validation, clock))

            def scores(nothing: Any) -> None:  # of what was validated while its loader was measured
                prepared.notify("on_epoch_end", dataset_train=training, dataset_valid=validation)

            parts.append(placer.Part("scores", scores, batch=(torch.empty(0),), modules=[prepared.module_]))
    return placer.Job(parts, repeats=prepared.max_epochs)


def _part(net: Any, name: str, data: Any, clock: Callable[[], float]) -> placer.Part:
    trains = name == "training"
    loader = net.get_iterator(data, training=trains)
    prefix, one_step = ("train", net.train_step) if trains else ("valid", net.validation_step)

    def step(batch: Any) -> None:
        net.run_single_epoch([batch], training=trains, prefix=prefix, step_fn=one_step)

    return placer.Part(
        name,
        step,
        count=len(loader),
        batch=(first_batch(loader),),
        modules=[net.module_, net.criterion_],
        loading=loading_between(loader, step, clock=clock),
    )


class Chosen(str):
    """The ``device`` of a net where placer put it, so where the next fit, also of a clone, may choose again."""


class ChooseOnFit(Callback):  # type: ignore[misc]
    """A skorch callback that chooses when training begins, and moves the net.

    For pipelines and searches, where only ``fit`` knows the data that reaches the net. It moves a net with skorch's
    default ``device="cpu"``. A net with any other device stays there, and nothing is predicted. ``options``: other
    arguments of ``placer.choose``. ``placement_`` is the last choice; None where the device was given.
    """

    def __init__(self, **options: Any) -> None:
        self.options = options

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """What scikit-learn's ``clone`` makes the next one from."""
        return dict(self.options)

    def set_params(self, **options: Any) -> Any:
        """As scikit-learn's; any argument of ``placer.choose``."""
        self.options.update(options)
        return self

    def on_train_begin(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:  # noqa: N803
        self.placement_: placer.JobPlacement | None = None
        if net.device != "cpu" and not isinstance(net.device, Chosen):
            keep(f"device={str(net.device)!r}")
            return
        self.placement_ = choose_job(partial(job, net, X, y), [net.module_, net.criterion_], **self.options)
        device = self.placement_.device
        modules = [net.module_, net.criterion_]
        with all_or_nothing(modules, net.optimizer_):
            move_modules(modules, device)
            move_optimizer(net.optimizer_)
        net.device = Chosen(device)

    def __getstate__(self) -> dict[str, Any]:
        """Without the choice, which holds a copy of the net and is about this machine."""
        return {name: value for name, value in vars(self).items() if name != "placement_"}

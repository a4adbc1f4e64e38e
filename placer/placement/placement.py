"""The answer of ``choose``: where the work goes, and the means to put it there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from placer.decision.decision import Decision
from placer.errors import PlacerError
from placer.placement.batches import MovedBatches, Staging
from placer.placement.drift import Drift
from placer.placement.moving import move
from placer.placement.step_times import StepTimes
from placer.pricing.prediction import Prediction

if TYPE_CHECKING:
    from placer.explanation import Explanation


class Placement:
    """Where a workload runs, why, and how sure that is.

    ``predictions`` maps device names to a ``Prediction`` and is empty when nothing could be predicted; ``confidence``
    is None then. ``threads`` is the number of CPU threads the choice was made for.
    """

    def __init__(
        self,
        decision: Decision,
        predictions: Mapping[str, Prediction] | None = None,
        *,
        pinned: bool = False,
        explain: Callable[[], Explanation] | None = None,
        workload: str | None = None,
        staging: Staging | None = None,
    ) -> None:
        self.decision = decision
        self.predictions: Mapping[str, Prediction] = predictions or {}
        self._pinned = pinned
        self._explain = explain
        self._workload = workload
        self._staging = staging

    def __repr__(self) -> str:
        return f"Placement(device={self.device!r}, confidence={self.confidence}, reason={self.reason!r})"

    @property
    def device(self) -> str:
        """The chosen device's name, as torch takes it and as ``predictions`` is keyed."""
        return self.decision.device

    @property
    def threads(self) -> int:
        return self.decision.threads

    @property
    def confidence(self) -> float | None:
        return self.decision.confidence

    @property
    def reason(self) -> str:
        return self.decision.reason

    @cached_property
    def times(self) -> StepTimes:
        """What ``step`` has seen."""
        predicted = self.predictions.get(self.device)
        if predicted is None:
            return StepTimes(self.device, threads=self.threads)
        return StepTimes(
            self.device,
            predicted.step_seconds,
            workload=self._workload,
            threads=self.threads,
            drift=Drift(self.device, self.predictions),
        )

    def to(self, x: Any) -> Any:
        """``x`` with every tensor in it on the device: a tensor, module or any nest; other leaves stay as they are."""
        return move(x, torch.device(self.device), non_blocking=self._pinned)

    def host(self, x: Any) -> Any:
        """``x`` with every tensor in it on the CPU: for checkpoints that any machine can load, and for plotting."""
        return move(x, torch.device("cpu"))

    def batches(self, loader: Iterable[Any]) -> Iterable[Any]:
        """The batches of ``loader``, on the device, copied beside the computation where that was measured to be faster.

        On the CPU this is ``loader`` itself. Batches come in the loader's order, none is fetched ahead of time.
        """
        if torch.device(self.device).type == "cpu":
            return loader
        return MovedBatches(loader, torch.device(self.device), self._staging)

    def step(self) -> AbstractContextManager[None]:
        """A context manager around one real step: records how long it takes (see ``times``)."""
        return self.times.step()

    def explain(self) -> Explanation:
        """Why, layer by layer. Raises PlacerError when nothing was predicted, with the reason."""
        if self._explain is None:
            raise PlacerError(f"there is no prediction to explain: {self.reason}")
        return self._explain()

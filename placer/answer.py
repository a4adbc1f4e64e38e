"""The answer of ``choose``: where the work goes, and the means to put it there."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import cache, partial
from typing import Any

import torch

from placer import decision as deciding
from placer import profile as profiles
from placer.decision import Decision, Plan, Request, history, measured, ranks
from placer.errors import PlacerError, PlacerWarning, first_line
from placer.explanation import Explanation, build
from placer.lazy import cached_property
from placer.placement import (
    Drift,
    MovedBatches,
    Optimizers,
    Staging,
    StepTimes,
    move,
    relocate,
    relocate_or_stay,
    staging,
    target,
)
from placer.pricing import Prediction, Provenance
from placer.workload import strict


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
        explain: Callable[[], Explanation] | None = None,
        workload: str | None = None,
        staging: Staging | None = None,
    ) -> None:
        self.decision = decision
        self.predictions: Mapping[str, Prediction] = predictions or {}
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

    @property
    def provenance(self) -> Provenance | None:
        """What the chosen device's numbers rest on: ``calibrated``, ``published`` or ``data sheet``.

        None when nothing was predicted.
        """
        predicted = self.predictions.get(self.device)
        return None if predicted is None else predicted.provenance

    @cached_property
    def times(self) -> StepTimes:
        """What ``step`` has seen."""
        predicted = self.predictions.get(self.device)
        if predicted is None:
            return StepTimes(self.device, threads=self.threads, record=measured.record)
        return StepTimes(
            self.device,
            predicted.step_seconds,
            workload=self._workload,
            threads=self.threads,
            drift=Drift(self.device, self.predictions),
            record=measured.record,
        )

    def to(self, x: Any) -> Any:
        """``x`` with every tensor in it on the device: a tensor, module or any nest; other leaves stay as they are."""
        return move(x, target(self.device))

    def host(self, x: Any) -> Any:
        """``x`` with every tensor in it on the CPU: for checkpoints that any machine can load, and for plotting."""
        return move(x, torch.device("cpu"))

    def batches(self, loader: Iterable[Any]) -> Iterable[Any]:
        """The batches of ``loader``, on the device, copied beside the computation where that was measured to be faster.

        On the CPU this is ``loader`` itself. Batches come in the loader's order, none is fetched ahead of time.
        """
        if self.device == "cpu":
            return loader
        return MovedBatches(loader, target(self.device), self._staging)

    def step(self) -> AbstractContextManager[None]:
        """A context manager around one real step: records how long it takes (see ``times``)."""
        return self.times.step()

    def explain(self) -> Explanation:
        """Why, layer by layer. Raises PlacerError when nothing was predicted, with the reason."""
        if self._explain is None:
            raise PlacerError(f"there is no prediction to explain: {self.reason}")
        return self._explain()


def placement_of(plan: Plan, decision: Decision) -> Placement:
    """The answer that a plan gives; ``decision`` is the plan's, or the one all ranks agreed on."""
    return Placement(
        decision,
        plan.predictions,
        explain=partial(explanation_of, plan),
        workload=plan.key or None,
        staging=None if decision.device == "cpu" else _staging(plan, decision.device),
    )


def _staging(plan: Plan, device: str) -> Staging | None:
    """What the plan's profile knows of copies to a device, under the name that it has there."""
    predicted = plan.predictions.get(device)
    fit = None if predicted is None else predicted.priced.fit
    return staging(plan.profile, device if fit is None else fit.device)


def explanation_of(plan: Plan, *, with_timeline: bool = True) -> Explanation:
    """What a plan rests on, layer by layer."""
    machine = profiles.describe(plan.profile)
    return build(
        plan.predictions, plan.decision, plan.workload, machine, notes=plan.notes, objective=plan.objective,
        with_timeline=with_timeline,
    )  # fmt: skip


class Mover:
    """Gives the answers to one request, and moves what it says.

    ``optimizer`` is the caller's (or several), whose state moves along also in inference. With ``move`` False nothing
    is touched.
    """

    def __init__(self, request: Request, optimizer: Optimizers, move: bool) -> None:
        self.request = request
        self.workload = request.workload
        self.optimizer = optimizer
        self.move = move

    def place(self, plan: Plan, decision: Decision) -> Placement:
        """The answer of a plan, its model moved; a PlacerWarning where the device refused it."""
        placed = self._settled(placement_of(plan, decision))
        if placed.decision is not decision:
            warnings.warn(PlacerWarning(f"not placed as predicted: {placed.reason}"), stacklevel=3)
        return placed

    def forced(self, device: str) -> Placement:
        """On the device that ``PLACER_DEVICE`` names, without a prediction."""
        decision = Decision(device, torch.get_num_threads(), None, f"{device}: set by PLACER_DEVICE")
        if self.move:
            relocate(self.workload, self.optimizer, device, threads=self._threads(decision))
        return Placement(decision)

    def by_convention(self, error: PlacerError, *, stacklevel: int = 3) -> Placement:
        """Where nothing could be predicted: the rule of every training script, with one PlacerWarning."""
        conventional = deciding.conventional(
            self.workload, self.request.devices, str(error), self.request.profile_read
        )
        agreed = ranks.agreed(conventional, (), self.workload)
        placement = self._settled(Placement(agreed))
        next_command = "" if "run: " in str(error) else "; to see where, run with PLACER_STRICT=1"
        message = f"placed on {placement.device} without a prediction: {error}{next_command}"
        if placement.decision is not agreed:
            message = f"{message}; {placement.reason}"
        warnings.warn(PlacerWarning(message), stacklevel=stacklevel)
        return placement

    def _settled(self, placement: Placement) -> Placement:
        """The placement after the move; another where the device refused it and everything stayed where it was."""
        if not self.move:
            return placement
        refused = relocate_or_stay(
            self.workload, self.optimizer, placement.device, allowed=self.request.devices,
            threads=self._threads(placement.decision),
        )  # fmt: skip
        if refused is None:
            return placement
        decision = Decision(refused.home, torch.get_num_threads(), None, refused.reason)
        return Placement(decision, placement.predictions, explain=placement.explain)

    def _threads(self, decision: Decision) -> int | None:
        """The number of CPU threads to set; None: as it is."""
        return decision.threads if self.request.threads == "tune" else None


def record(explain: Callable[[], Explanation], seconds: float) -> None:
    """A decision that took so long, and what explains it, into the history: for ``placer explain`` without a target.

    Layers are folded to the model's own children. Never raises, unless ``PLACER_STRICT=1``.
    """
    try:
        kept = explain().folded(depth=1)
        refused = history.record({"kind": "decision", "seconds": seconds, "explanation": kept.to_dict()})
    except Exception as error:  # whatever goes wrong in the history costs a line of it, not the decision
        if strict():
            raise
        _warn_unkept(f"explaining one failed with {type(error).__name__}: {first_line(error)}")
        return
    if refused is not None:
        path = history.history_path()
        _warn_unkept(f"cannot write {path} ({refused}); make room there, or name another folder in PLACER_HOME")


@cache
def _warn_unkept(why: str) -> None:
    """Once in a process and not for every decision: the answer is there all the same."""
    warnings.warn(PlacerWarning(f"decisions and step times are not kept for later runs: {why}"), stacklevel=4)

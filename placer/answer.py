"""The answer of ``choose``: where the work goes, and the means to put it there."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any, cast

import torch
from torch import nn

from placer import decision as deciding
from placer import machine
from placer import profile as profiles
from placer.decision import Advice, Apart, Decision, PricedPart, Table, decide_apart, history, homes, measured, ranks
from placer.errors import PlacerError, PlacerWarning, ProfileError, first_line
from placer.explanation import Explanation, LaterTurn, Turn, card, explain_table, reason_card
from placer.lazy import cached_property
from placer.placement import (
    Drift,
    MovedBatches,
    Optimizers,
    Refused,
    Staging,
    StepTimes,
    all_or_nothing,
    move,
    move_modules,
    move_optimizer,
    move_or_stay,
    relocate,
    relocate_or_stay,
    staging,
    target,
)
from placer.pricing import Cost, Provenance
from placer.profile import Profile
from placer.workload import Job, Workload, strict


class ByDevice(Mapping[Any, Any]):
    """What is known of each device, by its name or its ``torch.device``."""

    def __init__(self, costs: Mapping[str, Cost]) -> None:
        self._costs = dict(costs)

    def __getitem__(self, device: str | torch.device) -> Any:
        name = str(device)
        if name not in self._costs:
            try:
                name = machine.normal_device(name)
            except ValueError:
                raise KeyError(device) from None
        return self._costs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._costs)

    def __len__(self) -> int:
        return len(self._costs)

    def __repr__(self) -> str:
        return repr(self._costs)


class Placement:
    """Where a workload runs, why, and how sure that is.

    ``predictions`` has a ``Prediction`` by device and is empty when nothing could be predicted; ``confidence`` is None
    then. ``threads`` is the number of CPU threads the choice was made for.
    """

    def __init__(
        self,
        decision: Decision,
        predictions: Mapping[str, Cost] | None = None,
        *,
        explain: Callable[[], Explanation] | None = None,
        workload: str | None = None,
        staging: Staging | None = None,
    ) -> None:
        self.decision = decision
        self.predictions = ByDevice(predictions or {})
        self._explain = explain
        self._workload = workload
        self._staging = staging
        self._later: LaterTurn | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What is stored of it: where the choice turns cannot be asked of a model in another process."""
        return {**self.__dict__, "_later": None}

    def __repr__(self) -> str:
        return f"Placement(device='{self.device}', confidence={self.confidence}, reason={self.reason!r})"

    @property
    def device(self) -> torch.device:
        """The chosen device."""
        return target(self.decision.device)

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
        predicted = self.predictions.get(self.decision.device)
        return None if predicted is None else predicted.provenance

    @cached_property
    def times(self) -> StepTimes:
        """What ``step`` has recorded."""
        predicted = self.predictions.get(self.decision.device)
        return StepTimes(
            self.decision.device,
            None if predicted is None else predicted.step_seconds,
            workload=self._workload,
            threads=self.threads,
            drift=None if predicted is None else Drift(self.decision.device, self.predictions),
            record=measured.record,
        )

    def to(self, x: Any) -> Any:
        """``x`` with every tensor in it on the device: a tensor, module or any nest; all else stays as it is.

        An object moves by its own ``to`` if that takes a device and it holds tensors; ``to`` of another kind is not
        called.
        """
        return move(x, self.device)

    def host(self, x: Any) -> Any:
        """``x`` with every tensor in it on the CPU: for checkpoints that any machine can load, and for plotting."""
        return move(x, torch.device("cpu"))

    def batches(self, loader: Iterable[Any]) -> Iterable[Any]:
        """The batches of ``loader``, on the device, copied beside the computation where that was measured to be faster.

        On the CPU this is ``loader`` itself, elsewhere what answers as it does: ``iter``, ``next``, ``len``, ``[]``,
        ``bool``, ``isinstance`` and attributes. Batches come in the loader's order, none is fetched ahead of time.
        """
        if self.device.type == "cpu":
            return loader
        return MovedBatches(loader, self.device, self._staging)

    def step(self) -> AbstractContextManager[None]:
        """A context manager around one real step: records how long it takes (see ``times``)."""
        return self.times.step()

    def show_turn(self, later: LaterTurn | None) -> None:
        """What finds the batch size from which on the choice is another one, when a notebook shows this."""
        self._later = later

    @cached_property
    def _turn(self) -> Turn | None:
        return None if self._later is None else self._later()

    def _repr_html_(self) -> str:
        """A card for notebooks: the verdict, a bar for each device, and where the choice turns."""
        with suppress(PlacerError), deciding.only_placer_errors():
            return card(replace(self.explain(), turn=self._turn))
        return reason_card(self.decision.device, self.reason)

    def explain(self) -> Explanation:
        """Why, layer by layer. Raises PlacerError when nothing was predicted, with the reason."""
        if self._explain is None:
            raise PlacerError(f"there is no prediction to explain: {self.reason}")
        return self._explain()


class JobPlacement(Placement):
    """Where a job runs, why, and how sure that is.

    Times of ``predictions`` are those of the whole job, by device; ``device`` is where all of it runs, or, of a job
    whose parts run apart, the longest part of it. ``parts`` has a ``Placement`` for each part, by name, and ``models``
    the module that runs it, for each part that has a module.
    """

    def __init__(
        self,
        job: Job,
        decision: Decision,
        predictions: Mapping[str, Cost] | None = None,
        *,
        parts: Mapping[str, Placement] | None = None,
        apart: Apart | None = None,
        explain: Callable[[], Explanation] | None = None,
    ) -> None:
        super().__init__(decision, predictions, explain=explain)
        self.parts: Mapping[str, Placement] = parts or {part.name: Placement(decision) for part in job.parts}
        self.apart = apart
        targets = {part.name: part.workload.target for part in job.parts}
        self.models: dict[str, nn.Module] = {n: model for n, model in targets.items() if isinstance(model, nn.Module)}
        self._copied: list[tuple[nn.Module, nn.Module]] = []

    def refresh(self) -> None:
        """Bring what was learnt since to the parts that run a copy of their model, on another device than it."""
        with torch.no_grad():
            for original, copied in self._copied:
                new = {**dict(original.named_parameters()), **dict(original.named_buffers())}
                for name, tensor in (*copied.named_parameters(), *copied.named_buffers()):
                    tensor.copy_(new[name])

    def step(self) -> AbstractContextManager[None]:
        """A job is many steps. Raises PlacerError: the steps of a part are timed by its own placement."""
        raise PlacerError("a job's steps are those of its parts: time them with placement.parts[name].step()")

    def move_apart(self, job: Job, parts: Sequence[PricedPart], devices: Mapping[str, str]) -> None:
        """Move each model to the device where it is trained, or runs first; other parts of it get a copy on theirs.

        Raises what torch raises where a device refuses; everything is back where it was then.
        """
        where = homes(parts, [devices[part.name] for part in parts])
        copies: dict[str, tuple[nn.Module, nn.Module]] = {}
        with all_or_nothing((*job.modules, *job.loss_modules), job.optimizers):
            for part, priced in zip(job.parts, parts, strict=True):
                move_modules(part.workload.moved, target(where[priced.model]))
            for optimizer in job.optimizers:
                move_optimizer(optimizer)
            for part, priced in zip(job.parts, parts, strict=True):
                device = devices[part.name]
                if device != where[priced.model]:
                    original = cast(nn.Module, part.workload.target)
                    copies[part.name] = original, _copy(original, target(device), train=part.workload.mode == "train")
        self.models |= {name: copied for name, (_, copied) in copies.items()}
        self._copied = list(copies.values())


def _copy(model: nn.Module, device: torch.device, *, train: bool) -> nn.Module:
    """A copy without gradients on another device."""
    copied = copy.deepcopy(model)
    for parameter in copied.parameters():
        parameter.grad = None
    move_modules([copied], device)
    return copied.train(train)


def explanation_of(
    table: Table, decision: Decision, apart: Apart | None = None, advice: tuple[Advice, ...] = (), *,
    with_timeline: bool = True,
) -> Explanation:  # fmt: skip
    """What a decision on a table rests on, layer by layer. ``apart`` is how the parts of a job run, if so."""
    machine = profiles.describe(table.profile)
    return explain_table(table, decision, machine, apart, advice, with_timeline=with_timeline)


class PlacementBuilder:
    """Gives the answers for one step or job, and moves what it says.

    ``optimizer`` is the caller's, whose state moves along also in inference; a job has its own. ``devices`` are those
    to choose from (None: all of this machine). With ``move`` False nothing is touched.
    """

    def __init__(
        self, what: Workload | Job, optimizer: Optimizers, devices: tuple[str, ...] | None, *, threads: str, move: bool
    ) -> None:
        self.job = what if isinstance(what, Job) else None
        self.workload = what if isinstance(what, Workload) else _whole(what)
        self.optimizer: Optimizers = optimizer if self.job is None else self.job.optimizers
        self.devices = devices
        self.tuned = threads == "tune"
        self.move = move

    def answer(self, table: Table, decision: Decision, apart: Apart | None) -> Placement:
        """What a table says, the same for all ranks of a run. Nothing is moved yet."""
        chosen = decision if apart is None else decide_apart(table, apart, decision)
        agreed = ranks.agreed(chosen, table.costs, self.workload, tuned=self.tuned)
        return self._answer(table, agreed, apart, partial(explanation_of, table, decision, apart))

    def place(self, placement: Placement, table: Table, apart: Apart | None) -> Placement:
        """The answer of a table with the model moved; another one and a PlacerWarning where the device refused it."""
        refused = self._move(placement, table, apart) if self.move else None
        if refused is None:
            return placement
        warnings.warn(PlacerWarning(f"not placed as predicted: {refused.reason}"), stacklevel=3)
        return self._answer(table, _stayed(refused), None, placement.explain)

    def forced(self, device: str) -> Placement:
        """On the device that ``PLACER_DEVICE`` names, without a prediction; a model that is bound to one stays there.

        One PlacerWarning says what stands in the way of running it there.
        """
        reason = f"{device}: set by PLACER_DEVICE"
        obstacles = deciding.Obstacles(self.workload.modules, self.optimizer)
        obstacle = obstacles.on(device)
        if obstacle is not None:
            message = f"PLACER_DEVICE={device}: {obstacle}"
            if strict():
                raise PlacerError(message)
            if obstacles.bound is not None:
                device = obstacles.bound.home
                reason = f"{device}: {message}"
            warnings.warn(PlacerWarning(f"placed on {device}; {message}"), stacklevel=3)
        decision = Decision(device, torch.get_num_threads(), None, reason)
        if self.move:
            relocate(self.workload, self.optimizer, device, threads=self._threads(decision))
        return self._unpredicted(decision)

    def by_convention(self, error: PlacerError, profile: Profile | None) -> Placement:
        """Where nothing could be predicted: the rule of every training script, with one PlacerWarning."""
        conventional = deciding.conventional(self.workload, self.devices, str(error), profile, self.optimizer)
        agreed = ranks.agreed(conventional, (), self.workload)
        placement = self._unpredicted(agreed)
        refused = self._move(placement) if self.move else None
        if refused is not None:
            placement = self._unpredicted(_stayed(refused))
        # What is wrong with a profile names the command that puts it right.
        next_command = "" if isinstance(error, ProfileError) else "; to see where, run with PLACER_STRICT=1"
        message = f"placed on {placement.decision.device} without a prediction: {error}{next_command}"
        older = machine.older_torch()
        if older is not None:
            message = f"{message}; {older}"
        if refused is not None:
            message = f"{message}; {placement.reason}"
        warnings.warn(PlacerWarning(message), stacklevel=3)
        return placement

    def _answer(
        self, table: Table, decision: Decision, apart: Apart | None, explain: Callable[[], Explanation]
    ) -> Placement:
        if self.job is None:
            return _placed_step(table, decision, explain)
        parts = {}
        for part in table.parts:
            alone = table.alone(part)
            device = decision.device if apart is None else apart.devices[part.name]
            own = alone.decide()
            if own.device != device:
                own = Decision(device, own.threads, decision.confidence, f"{device}: with the job ({decision.reason})")
            parts[part.name] = _placed_step(alone, own, partial(explanation_of, alone, alone.decide()))
        return JobPlacement(self.job, decision, table.costs, parts=parts, apart=apart, explain=explain)

    def _unpredicted(self, decision: Decision) -> Placement:
        return Placement(decision) if self.job is None else JobPlacement(self.job, decision)

    def _move(self, placement: Placement, table: Table | None = None, apart: Apart | None = None) -> Refused | None:
        """Move what the placement says; what went wrong where the device refused it and everything stayed."""
        if apart is not None and table is not None and isinstance(placement, JobPlacement) and self.job is not None:
            moving = partial(placement.move_apart, self.job, table.parts, apart.devices)
            return move_or_stay(moving, self.job.modules, placement.decision.device, allowed=self.devices)
        return relocate_or_stay(
            self.workload, self.optimizer, placement.decision.device, allowed=self.devices,
            threads=self._threads(placement.decision),
        )  # fmt: skip

    def _threads(self, decision: Decision) -> int | None:
        """The number of CPU threads to set; None: as it is."""
        return decision.threads if self.tuned else None


def _whole(job: Job) -> Workload:
    """All models of a job as those of one step, which trains if any does: for what does not depend on the step."""
    trained = next((part for part in job.parts if part.workload.mode == "train"), job.parts[0])
    return replace(trained.workload, modules=job.modules, loss_modules=job.loss_modules, steps=job.repeats)


def _stayed(refused: Refused) -> Decision:
    return Decision(refused.home, torch.get_num_threads(), None, refused.reason)


def _placed_step(table: Table, decision: Decision, explain: Callable[[], Explanation]) -> Placement:
    """The answer for the only part of a table, which runs on the decision's device."""
    (part,) = table.parts
    return Placement(
        decision, part.predictions, explain=explain, workload=part.key,
        staging=None if decision.device == "cpu" else _staging(table, decision.device),
    )  # fmt: skip


def _staging(table: Table, device: str) -> Staging | None:
    """What the table's profile knows of copies to a device, under the name that it has there."""
    predicted = table.parts[0].predictions.get(device)
    fit = None if predicted is None else predicted.priced.fit
    return staging(table.profile, device if fit is None else fit.device)


def record(table: Table, decision: Decision, apart: Apart | None, seconds: float) -> None:
    """A decision that took so long, and what explains it, into the history: for ``placer explain`` without a target.

    Layers are folded to the model's own children. Never raises, unless ``PLACER_STRICT=1``.
    """
    try:
        kept = explanation_of(table, decision, apart, with_timeline=False).folded(depth=1)
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

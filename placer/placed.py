"""The answer of ``choose``: where the work goes, and the means to put it there."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import cache
from numbers import Integral
from typing import Any

import torch
from torch import nn

from placer import machine
from placer.decision import (
    JOB,
    Decision,
    Obstacles,
    Source,
    StepTime,
    Table,
    common_size,
    conventional,
    current_profile,
    history,
    only_placer_errors,
    ranks,
    recorded,
    unpredicted,
)
from placer.errors import PlacerError, PlacerWarning, ProfileError, first_line
from placer.explanation import Explanation, Turns, card
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
from placer.pricing import Cost, Provenance
from placer.profile import Profile
from placer.sections import Section
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
        table: Table | None = None,
        *,
        staging: Staging | None = None,
        turns: Turns | None = None,
    ) -> None:
        self.decision = decision
        costs: Mapping[str, Cost] = {}
        if table is not None:  # of a step with the prices of its ops
            costs = table.costs if table.unit == JOB else table.parts[0].predictions
        self.predictions = ByDevice(costs)
        self._table = table
        self._staging = staging
        self._turns = turns

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
        drift = None if predicted is None else Drift(self.decision.device, self.predictions)
        return StepTimes(self.decision.device, drift=drift, record=self._record)

    def _record(self, *summary: Any) -> None:
        """Step times into the history: median, low, high, and how many. Those of a job are of several steps."""
        table, predicted = self._table, self.predictions.get(self.decision.device)
        if table is not None and predicted is not None and table.unit != JOB:
            recorded.record(table.parts[0].identity, predicted, table.profile, StepTime(*summary))

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

    @cached_property
    def turns(self) -> tuple[tuple[int, torch.device], ...]:
        """The batch sizes from which on another device is chosen, each with that device; the first size is 1.

        For inference with the model on each of these devices. Some seven steps are traced in child processes when it is
        first asked for, in a second or so: ask before requests come. There is one row where the choice cannot turn: no
        accelerator, no prediction, a step function, or inputs without a common first size. Raises PlacerError for a
        step that trains, for a job, and where the model is gone before turns were asked for, or in another process.
        """
        if self._table is not None and self._table.parts[0].facts["mode"] == "train":
            raise PlacerError("what trains stays on one device: for requests, call choose with mode='infer'")
        rows = ((1, self.decision.device),) if self._turns is None else self._turns.rows()
        return tuple([(size, target(device)) for size, device in rows])

    def for_batch(self, x: Any) -> torch.device:
        """The device to run a batch on, of those in ``turns``: what ``choose`` would say for its size.

        ``x`` is a batch, a tensor or any nest like the one that was chosen for, or its size. Sizes beyond those that
        were priced get the nearest one's device, and a batch whose size is not known gets ``device``. A call takes
        microseconds, from any thread, once ``turns`` are known. Raises what ``turns`` raises, and nothing for an ``x``.
        """
        turns = self.turns
        chosen = turns[0][1]
        if len(turns) == 1:
            return chosen
        size = _rows_of(x)
        if size is None:
            return self.device
        for first, device in turns:
            if size >= first:
                chosen = device
        return chosen

    def step(self) -> AbstractContextManager[None]:
        """A context manager around one real step: records how long it takes (see ``times``)."""
        return self.times.step()

    def _repr_html_(self) -> str:
        """A card for notebooks: the verdict, and a bar for each device."""
        with suppress(PlacerError), only_placer_errors():
            return self.explain()._repr_html_()
        reason = self.reason.removeprefix(f"{self.decision.device}: ")
        return card(Section(self.decision.device, after=[reason]))

    def explain(self) -> Explanation:
        """Why, layer by layer. Raises PlacerError when nothing was predicted, with the reason."""
        if self._table is None:
            raise PlacerError(f"there is no prediction to explain: {self.reason}")
        return Explanation.of(self._table)


class JobPlacement(Placement):
    """Where a job runs, why, and how sure that is.

    Times of ``predictions`` are those of the whole job, by device. ``parts`` has a ``Placement`` for each part, by
    name, and ``models`` the module that runs it, for each part that has a module.
    """

    def __init__(
        self, job: Job, decision: Decision, table: Table | None = None, *, parts: Mapping[str, Placement] | None = None
    ) -> None:
        super().__init__(decision, table)
        self.parts: Mapping[str, Placement] = parts or {part.name: Placement(decision) for part in job.parts}
        targets = {part.name: part.workload.model for part in job.parts}
        self.models: dict[str, nn.Module] = {n: model for n, model in targets.items() if isinstance(model, nn.Module)}

    @property
    def turns(self) -> tuple[tuple[int, torch.device], ...]:
        """A job is on one device. Raises PlacerError."""
        raise PlacerError("a job stays on one device: for requests, call choose with the model that serves them")

    def step(self) -> AbstractContextManager[None]:
        """A job is many steps. Raises PlacerError: the steps of a part are timed by its own placement."""
        raise PlacerError("a job's steps are those of its parts: time them with placement.parts[name].step()")


@dataclass(frozen=True)
class Placing:
    """Gives the answers for one step or job, and moves what they say.

    ``given`` is the caller's optimizer, whose state moves along also in inference; a job has its own. ``devices`` are
    those to choose from (None: all of this machine). With ``move`` False nothing is touched.
    """

    work: Workload | Job
    given: Optimizers
    devices: tuple[str, ...] | None
    threads: str
    move: bool

    @property
    def workload(self) -> Workload:
        """The step; of a job all its models as those of one step, for what does not depend on the step."""
        job = self.work
        if not isinstance(job, Job):
            return job
        trained = next((part for part in job.parts if part.workload.mode == "train"), job.parts[0])
        return replace(trained.workload, modules=job.modules, loss_modules=job.loss_modules, steps=job.repeats)

    @property
    def optimizer(self) -> Optimizers:
        return self.work.optimizers if isinstance(self.work, Job) else self.given

    def decided(self, table: Table, turns: Turns | None = None) -> Placement:
        """What a table says, the same for all ranks of a run; ``turns`` are for other batches. Nothing is moved yet."""
        decision = ranks.agreed(table.decide(), table.costs, self.workload, tuned=self.threads == "tune")
        return self._predicted(table, decision, turns)

    def place(self, placement: Placement, table: Table) -> Placement:
        """The same with the model moved; another one and a PlacerWarning where the device refused it."""
        refused = self._move(placement.decision)
        if refused is None:
            return placement
        warnings.warn(PlacerWarning(f"not placed as predicted: {refused.reason}"), stacklevel=3)
        return self._predicted(table, refused)

    def _predicted(self, table: Table, decision: Decision, turns: Turns | None = None) -> Placement:
        """The answer of a table. A part of a job has its own reason, unless it goes along with the job."""
        if not isinstance(self.work, Job):
            return _placed_step(table, decision, turns)
        parts: dict[str, Placement] = {}
        for part in table.parts:
            alone = table.alone(part)
            of_part = alone.decide()
            if of_part.device != decision.device:
                reason = f"{decision.device}: with the job ({decision.reason})"
                of_part = Decision(decision.device, of_part.threads, decision.confidence, reason)
            parts[part.name] = _placed_step(alone, of_part)
        return JobPlacement(self.work, decision, table, parts=parts)

    def forced(self, device: str) -> Placement:
        """On the device that ``PLACER_DEVICE`` names, without a prediction; a model that is bound to one stays there.

        One PlacerWarning says what stands in the way of running it there.
        """
        reason = f"{device}: set by PLACER_DEVICE"
        obstacles = Obstacles(self.workload.modules, self.optimizer)
        obstacle = obstacles.on(device)
        if obstacle is not None:
            message = f"PLACER_DEVICE={device}: {obstacle}"
            if strict():
                raise PlacerError(message)
            if obstacles.bound is not None:
                device = obstacles.bound.home
                reason = f"{device}: {message}"
            warnings.warn(PlacerWarning(f"placed on {device}; {message}"), stacklevel=3)
        decision = unpredicted(device, reason)
        if self.move:
            relocate(self.workload, self.optimizer, device, threads=self._threads(decision))
        return self._placed(decision)

    def by_convention(self, error: PlacerError, source: Source | None) -> Placement:
        """Where nothing could be predicted: the rule of every training script, with one PlacerWarning.

        The profile that ``source`` names tells which devices cannot be used, where it can be read.
        """
        profile: Profile | None = None
        with suppress(PlacerError), only_placer_errors():
            profile = current_profile(source)
        decision = conventional(self.workload, self.devices, str(error), profile, self.optimizer)
        decision = ranks.agreed(decision, (), self.workload)
        refused = self._move(decision)
        decision = refused or decision
        # What is wrong with a profile names the command that puts it right.
        next_command = "" if isinstance(error, ProfileError) else "; to see where, run with PLACER_STRICT=1"
        message = f"placed on {decision.device} without a prediction: {error}{next_command}"
        for more in (machine.older_torch(), None if refused is None else refused.reason):
            message += "" if more is None else f"; {more}"
        warnings.warn(PlacerWarning(message), stacklevel=3)
        return self._placed(decision)

    def _placed(self, decision: Decision) -> Placement:
        return JobPlacement(self.work, decision) if isinstance(self.work, Job) else Placement(decision)

    def _move(self, decision: Decision) -> Decision | None:
        """Move what a decision says; another one where the device refused it and everything stayed."""
        if not self.move:
            return None
        threads = self._threads(decision)
        refused = relocate_or_stay(
            self.workload, self.optimizer, decision.device, allowed=self.devices, threads=threads
        )
        return None if refused is None else unpredicted(refused.home, refused.reason)

    def _threads(self, decision: Decision) -> int | None:
        """The number of CPU threads to set; None: as it is."""
        return decision.threads if self.threads == "tune" else None


def _placed_step(table: Table, decision: Decision, turns: Turns | None = None) -> Placement:
    """The answer for the only part of a table, which runs on the decision's device."""
    device = decision.device
    if device == "cpu":
        return Placement(decision, table, turns=turns)
    # What the profile knows of copies to a device, under the name that it has there.
    predicted = table.parts[0].predictions.get(device)
    fit = None if predicted is None else predicted.priced.fit
    staged = staging(table.profile, device if fit is None else fit.device)
    return Placement(decision, table, staging=staged, turns=turns)


def _rows_of(x: Any) -> int | None:
    """The first size that all tensors of a batch share, or the number that it is; None where that is not known."""
    try:
        if isinstance(x, torch.Tensor):
            return x.size(0)
        return int(x) if isinstance(x, Integral) else common_size(x)
    except Exception:  # noqa: BLE001 - whatever a request holds, it gets a device
        return None


def record(table: Table, seconds: float) -> None:
    """A decision that took so long, with its rows, into the history: for ``placer explain`` without a target.

    Never raises, unless ``PLACER_STRICT=1``.
    """
    try:
        rows = Explanation.of_rows(table)
        refused = history.record({"kind": "decision", "seconds": seconds, "explanation": rows.to_dict()})
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

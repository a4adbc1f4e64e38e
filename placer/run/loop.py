"""What a script's loop takes in all: an epoch on each device, priced, with what was measured outside of its models.

A turn of the loop is the wait for a batch, the steps of the models, and all the rest: metrics, logging, other code. The
steps are priced for each device. The rest stays as it was measured, as the host does it wherever the models are. So
does the wait; with workers, which load while a step runs, a turn takes no less than it did where the script waited for
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from placer.decision import TIE
from placer.explanation import Explanation
from placer.pricing import Cost
from placer.run.loaders import Loaders, Pass
from placer.run.watched import WatchedModel

#: The share of a turn that is waited for workers, after the first batch, from which on a turn is as long as theirs.
WORKERS_BOUND = 0.1


@dataclass(frozen=True)
class LoopTimes:
    """A usual turn of a loop in seconds: in all, in the step of its model, and waiting for batches."""

    seconds: float
    inside: float
    waiting: float

    @property
    def rest(self) -> float:
        """Neither the model nor the loader."""
        return max(self.seconds - self.inside - self.waiting, 0.0)


@dataclass(frozen=True)
class PricedModel:
    """A model that ran, what its steps cost on each device, and the device ``home`` that it ran on."""

    watched: WatchedModel
    explanation: Explanation
    home: str

    def runs_on(self, device: str) -> bool:
        """Whether it has a price there, and room, unless that is where it ran."""
        row = self.explanation.devices.get(device)
        return row is not None and (row.fits or device == self.home)

    def step(self, device: str) -> tuple[float, float, float]:
        """Seconds for one step of its optimizer, with all runs that the model makes for it, and a 90 % interval."""
        row, runs = self.explanation.devices[device], self.watched.runs_per_step
        updates, whole = 0.0, 0.0
        for layer in self.explanation.layers:
            seconds = layer.devices.get(device, 0.0)
            whole += seconds
            if layer.phase == "optimizer":
                updates += seconds
        once = updates / whole if whole else 0.0
        times = runs * (1.0 - once) + once
        return times * row.step_seconds, times * row.low, times * row.high

    @property
    def loop(self) -> LoopTimes | None:
        """Of turns that were looked at; None where there was none, or nobody knows when the model has ended.

        An accelerator may still be at work when the host goes on: there a model takes at least what was predicted.
        """
        watched = self.watched
        if not watched.inside or (self.home != "cpu" and self.home not in self.explanation.devices):
            return None
        # Workers give batches in bursts: the script waits long for some of them, and not at all for others.
        usual = fmean if watched.workers else median
        seconds, waiting, inside = usual(watched.loop), usual(watched.waits), median(watched.inside)
        if self.home != "cpu":
            inside = max(inside, self.step(self.home)[2])
        return LoopTimes(seconds, min(inside, seconds - waiting), waiting)


@dataclass(frozen=True)
class DeviceTime:
    """What a run takes on a device: seconds with a 90 % interval, dollars and joules where they are known."""

    seconds: float
    low: float
    high: float
    dollars: float | None = None
    joules: float | None = None


@dataclass(frozen=True)
class RunTime:
    """``epochs`` epochs of ``batches`` batches each, on each of the ``devices``.

    ``unit`` is ``epoch``; ``batches``, where nobody knows how many an epoch has, or ``steps`` (of an optimizer) in a
    script without a loader: then as many as there were. ``measured_seconds`` is what they would take as measured on
    ``home``, where the script ran; ``loader_share`` the share of that in which it waited for batches. None: not known.
    """

    unit: str
    batches: int
    epochs: int
    home: str
    devices: Mapping[str, DeviceTime]
    measured_seconds: float | None
    loader_share: float | None


@dataclass(frozen=True)
class _Turn:
    """A turn of the loop, measured: seconds in all and waiting, and how many there were.

    ``kept_waiting``: workers load, and the loop waits for them all along, not only while they start.
    """

    seconds: float
    waiting: float
    count: int
    kept_waiting: bool = False


@dataclass(frozen=True)
class _Loop:
    """A turn of the loop for pricing: how many steps of each model are in it, and the seconds beside these.

    ``untraced`` are seconds of the script's own work between a call and the end of a step, on the device it ran on and,
    where the host bounds the step, on others too. ``least`` is what a turn takes at the least, since workers give no
    batch sooner.
    """

    steps: Sequence[tuple[PricedModel, float]]
    beside: float = 0.0
    untraced: float = 0.0
    least: float = 0.0

    @property
    def home(self) -> str:
        """The device it ran on."""
        return self.steps[0][0].home

    @property
    def host_bound(self) -> bool:
        """Whether starting operations bounds most of the models where they ran."""
        bounds = [model.explanation.devices[self.home].bounded_by for model, _ in self.steps]
        return 2 * bounds.count("launches") > len(bounds)

    def on(self, device: str) -> tuple[float, float, float]:
        """Seconds of a turn on a device, and a 90 % interval: what was measured repeats within a tie."""
        seconds = self.beside + (self.untraced if device == self.home or self.host_bound else 0.0)
        low, high = seconds * (1.0 - TIE), seconds * (1.0 + TIE)
        for model, count in self.steps:
            step = model.step(device)
            seconds, low, high = seconds + count * step[0], low + count * step[1], high + count * step[2]
        return max(seconds, self.least), max(low, self.least * (1.0 - TIE)), max(high, self.least * (1.0 + TIE))


def run_time(
    models: Sequence[PricedModel], loaders: Loaders, *, steps_per_epoch: int | None, epochs: int | None
) -> RunTime | None:
    """What an epoch takes, or several. None where there is nothing to multiply."""
    trained = [model for model in models if model.watched.steps and model.watched.mode == "train"]
    counted = trained or list(models)
    if not counted:
        return None
    main = max(counted, key=lambda model: model.watched.steps * _longest(model))
    passes = [one for one in loaders.passes if one.batches and (one.steps > 0) == bool(trained)]
    turn = _turn_of_passes(passes) if passes else _turn_of_steps(main.watched)
    batches = steps_per_epoch or _batches(passes)
    unit = "epoch" if batches else "batches" if passes else "steps"
    if batches is None:
        if turn is None:
            return None
        batches = turn.count
    loop = _priced([(model, _steps_per_turn(model, main, passes)) for model in counted], turn)
    many = batches * (epochs or 1)
    return RunTime(
        unit=unit,
        batches=batches,
        epochs=epochs or 1,
        home=main.home,
        devices={
            device: _device_time(cost, many, loop.on(device))
            for device, cost in main.explanation.devices.items()
            if all(model.runs_on(device) for model in counted)
        },
        measured_seconds=None if turn is None else many * turn.seconds,
        loader_share=turn.waiting / turn.seconds if turn is not None and passes and turn.seconds else None,
    )


def _priced(steps: Sequence[tuple[PricedModel, float]], turn: _Turn | None) -> _Loop:
    """The loop with what was measured beside the steps of its models.

    A model takes no longer than the end of its interval: what goes by beyond it, until the step has ended, is the
    script's own (its loss, clipped gradients, a framework's hooks). On an accelerator, which may still be at work when
    the host goes on, it takes at least as long.
    """
    loop = _Loop(steps)
    if turn is None or any(loop.home not in model.explanation.devices for model, _ in steps):
        return loop
    busy = 0.0
    for model, count in steps:
        # Without times of clean steps, nobody knows what is beside them.
        busy = max(busy, count * median(model.watched.busy) if model.watched.busy else turn.seconds)
    longest = loop.on(loop.home)[2]
    untraced = max(busy - longest, 0.0) if loop.home == "cpu" else 0.0
    rest = max(turn.seconds - turn.waiting - (busy if loop.home == "cpu" else max(busy, longest)), 0.0)
    if turn.kept_waiting:
        return _Loop(steps, rest, untraced, least=turn.seconds)
    return _Loop(steps, rest + turn.waiting, untraced)


def _device_time(cost: Cost, many: int, turn: tuple[float, float, float]) -> DeviceTime:
    seconds, low, high = (many * part for part in turn)
    dollars = None if cost.dollars_per_hour is None else cost.dollars_per_hour * seconds / 3600.0
    joules = None if cost.watts is None else cost.watts * seconds
    return DeviceTime(seconds, low, high, dollars, joules)


def _longest(model: PricedModel) -> float:
    return max(row.step_seconds for row in model.explanation.devices.values())


def _turn_of_passes(passes: Sequence[Pass]) -> _Turn:
    """Without the first pass, if there are others, else without its first turn: a process starts slowly."""
    warm = passes[1:] if len(passes) > 1 else passes
    seconds, waited, count = 0.0, 0.0, 0
    later, in_seconds = 0.0, 0.0
    for one in warm:
        of_pass = one.turns(warm=len(passes) == 1)
        seconds, waited, count = seconds + of_pass[0], waited + of_pass[1], count + of_pass[2]
        if one.workers:
            after_first = one.turns(warm=True)
            in_seconds, later = in_seconds + after_first[0], later + after_first[1]
    many = sum(one.batches for one in passes)
    return _Turn(seconds / count, waited / count, many, kept_waiting=later > WORKERS_BOUND * in_seconds)


def _turn_of_steps(watched: WatchedModel) -> _Turn | None:
    """From one step of its optimizer to the next, the newest ones: all that goes by between them."""
    return _Turn(fmean(watched.between), 0.0, watched.steps) if watched.between else None


def _batches(passes: Sequence[Pass]) -> int | None:
    """Of an epoch, which is the longest pass."""
    lengths = [length for one in passes if (length := one.length) is not None]
    return max(lengths, default=None)


def _steps_per_turn(model: PricedModel, main: PricedModel, passes: Sequence[Pass]) -> float:
    """Steps of a model's optimizer for each batch of the loader, or for each step of the main model's without one.

    Of models that only infer, runs.
    """
    watched = model.watched
    if watched.steps and passes:
        return watched.steps / sum(one.batches for one in passes)
    if watched.steps:
        return watched.steps / main.watched.steps
    first, last = watched.batches
    return max(round(watched.runs / (last - first + 1)), 1) if passes else 1.0

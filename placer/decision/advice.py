"""What would make a step faster: changes to the workload, each priced like the workload itself.

Only what the cost model can price is proposed: a dtype, a copy, a number of threads or a fused optimizer that the
profile has no measurement of is left out, not guessed. What remains is sorted by what it saves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping

import torch

from placer import tracing
from placer.decision import changes
from placer.decision.comparison import Comparison
from placer.decision.decision import Decision, decide
from placer.decision.making import only_placer_errors
from placer.decision.plan import Plan
from placer.decision.split_advice import embeddings_on_cpu
from placer.decision.timed import counted_seconds
from placer.errors import PlacerError
from placer.pricing import Prediction
from placer.profile import DeviceFit
from placer.tracing import Trace
from placer.workload import Workload

#: A change that saves less than this share of the time is not worth naming: predictions are not that exact.
LEAST_GAIN = 0.05
#: By how much larger a batch is asked about.
LARGER = 4
#: A price of which less than this share is calibrated is a guess.
BACKED = 0.9


@dataclasses.dataclass(frozen=True)
class Advice:
    """A change to the workload, priced: ``change`` in words, ``how`` as code, and where it would then run best.

    ``before`` and ``after`` are seconds per step, for a larger ``batch`` per row of it, so that they compare; ``gain``
    is the share of ``before`` that is saved. ``changes_results`` tells that the model would compute something else,
    ``guess`` that much of ``after`` is not backed by calibration, ``tips`` that devices which are about the same
    would not be any more: ``device`` would be ahead. ``fits_on`` is a device that the workload fits on only so.
    """

    kind: str
    change: str
    how: str
    device: str
    before: float
    after: float
    gain: float
    changes_results: bool = False
    guess: bool = False
    tips: bool = False
    fits_on: str = ""


@dataclasses.dataclass(frozen=True)
class _Question:
    """The workload as it is, and everything needed to price it changed."""

    workload: Workload
    trace: Trace
    predictions: Mapping[str, Prediction]
    decision: Decision
    comparison: Comparison

    @property
    def device(self) -> str:
        return self.decision.device

    @property
    def chosen(self) -> Prediction:
        return self.predictions[self.device]

    @property
    def fit(self) -> DeviceFit | None:
        return self.chosen.priced.fit

    def answer(self, kind: str, change: str, how: str, trace: Trace, workload: Workload | None = None, *,
               rows: int = 1, changes_results: bool = False) -> Advice:  # fmt: skip
        """The advice that a changed trace or workload amounts to; ``rows`` is how many times the rows it has."""
        changed = workload or self.workload
        predictions, _ = self.comparison.price(trace, changed)
        decided = decide(predictions, changed.steps, self.comparison.objective)
        best = predictions[decided.device]
        before, after = self.chosen.step_seconds, best.step_seconds / rows
        size = changes.batch_size(self.workload) or 1 if rows > 1 else 1
        return Advice(
            kind=kind, change=change, how=how, device=best.device, before=before / size, after=after / size,
            gain=1.0 - after / before if before and best.fits else 0.0, changes_results=changes_results,
            guess=best.coverage < BACKED, tips=self.decision.tie and not decided.tie,
        )  # fmt: skip


def advise(workload: Workload, plan: Plan, comparison: Comparison) -> tuple[Advice, ...]:
    """The changes that save at least ``LEAST_GAIN`` of a step (per row, for a larger batch), the largest first.

    One that makes the workload fit on the only device that is faster, or on any at all, comes whatever it saves.

    ``plan`` is what was made of ``workload`` by ``comparison``. A change that cannot be traced or priced is left out;
    nothing is raised.
    """
    device = plan.decision.device
    if workload.is_step_function or device not in plan.predictions:
        return ()
    chosen = plan.predictions[device]
    trace = chosen.priced.trace
    question = _Question(workload, trace, plan.predictions, plan.decision, comparison)
    found: list[Advice] = []
    for ask in (_batch, _data, _autocast, _fused, _threads, _syncs, _activations, _embeddings):
        found += _asked(ask, question)
    return tuple(sorted((a for a in found if a.gain >= LEAST_GAIN or a.fits_on), key=lambda a: -a.gain))


def _asked(ask: Callable[[_Question], Iterator[Advice]], question: _Question) -> list[Advice]:
    try:
        with only_placer_errors():
            return list(ask(question))
    except PlacerError:  # the changed step cannot be traced, or its profile knows nothing of it
        return []


def _batch(q: _Question) -> Iterator[Advice]:
    size = changes.batch_size(q.workload)
    if size is None or q.trace.real:
        return
    steps = None if q.workload.steps is None else -(-q.workload.steps // LARGER)
    larger = dataclasses.replace(changes.with_batch(q.workload, size * LARGER), steps=steps)
    change = f"a batch of {size * LARGER:,} instead of {size:,}"
    yield q.answer("batch", change, "", tracing.trace(larger), larger, rows=LARGER)


def _data(q: _Question) -> Iterator[Advice]:
    """Matters on accelerators only, and may make one the better choice."""
    if q.workload.data != "host":
        return
    fits = [p.priced.fit for p in q.predictions.values() if p.priced.device != "cpu" and p.priced.fit is not None]
    if any("copy/h2d/pinned/bytes_per_second" in fit.rates for fit in fits):
        pinned = dataclasses.replace(q.workload, data="pinned")
        yield q.answer("data", "batches in pinned memory", 'DataLoader(..., pin_memory=True) and data="pinned"',
                       q.trace, pinned)  # fmt: skip
    if fits:
        resident = dataclasses.replace(q.workload, data="device")
        yield q.answer("data", "the data set kept on the device", 'data="device"', q.trace, resident)


def _autocast(q: _Question) -> Iterator[Advice]:
    """Asked only where the lower precision was measured to be the faster one."""
    if q.workload.autocast is not None or q.fit is None or q.trace.real:
        return
    rates = q.fit.rates
    if rates.get("flops/bfloat16", 0.0) <= rates.get("flops/float32", 0.0):
        return
    lower = dataclasses.replace(q.workload, autocast=torch.bfloat16)
    yield q.answer("autocast", "autocast to bfloat16", "autocast=torch.bfloat16", tracing.trace(lower), lower,
                   changes_results=True)  # fmt: skip


def _fused(q: _Question) -> Iterator[Advice]:
    name = q.trace.optimizer
    if name is None or q.fit is None or not changes.knows_fused(q.fit, name):
        return
    yield q.answer("optimizer", f"the fused form of {name}", f"{name}(..., fused=True)", changes.with_fused(q.trace))


def _threads(q: _Question) -> Iterator[Advice]:
    """Every other calibrated number of threads; only the best of them is worth a sentence."""
    if q.device != "cpu" or q.comparison.threads == "tune":
        return
    tuning = dataclasses.replace(q.comparison, threads="tune", what_if=None, beside=(), devices=("cpu",))
    predictions, _ = tuning.price(q.trace, dataclasses.replace(q.workload, on_cpu=()))
    best, now = predictions["cpu"], q.chosen
    if best.threads != now.threads:
        yield Advice(
            kind="threads", change=f"{best.threads} CPU thread{'s' * (best.threads > 1)} instead of {now.threads}",
            how=f"torch.set_num_threads({best.threads})", device="cpu", before=now.step_seconds,
            after=best.step_seconds, gain=1.0 - best.step_seconds / now.step_seconds, guess=best.coverage < BACKED,
        )  # fmt: skip


def _syncs(q: _Question) -> Iterator[Advice]:
    if not q.trace.syncs or not any(p.priced.device != "cpu" for p in q.predictions.values()):
        return
    times = "once" if q.trace.syncs == 1 else f"{q.trace.syncs} times"
    yield q.answer("sync", f"no value read back during the step (now {times})", "", changes.without_syncs(q.trace),
                   changes_results=False)  # fmt: skip


def _activations(q: _Question) -> Iterator[Advice]:
    for name in changes.substitutable(q.trace):
        new = changes.SUBSTITUTES[name]
        yield q.answer("op", f"{new} in place of {name}", f"torch.nn.functional.{new}",
                       changes.substituted(q.trace, name), changes_results=True)  # fmt: skip


def _embeddings(q: _Question) -> Iterator[Advice]:
    """Large embeddings on the CPU, the rest on an accelerator: where that is faster, or where nothing else fits."""
    found = embeddings_on_cpu(q.workload, q.predictions, q.comparison)
    if found is None:
        return
    before, after = q.chosen.step_seconds, found.prediction.step_seconds
    steps = q.workload.steps
    if counted_seconds(found.prediction, steps) < counted_seconds(q.chosen, steps) or not q.chosen.fits:
        yield Advice(
            kind="split", change=found.change, how=found.how, device=found.prediction.device, before=before,
            after=after, gain=1.0 - after / before, guess=found.prediction.coverage < BACKED, fits_on=found.fits_on,
        )  # fmt: skip

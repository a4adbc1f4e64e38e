"""The GPU side: published steps of real networks, priced again with each mechanism switched off.

The networks of the device model are not fitted again without a mechanism. Where a mechanism is one of their inputs,
they get its mean; where it is part of the physics below them, they still correct physics that had it. What such a part
does by itself shows where nothing is learnt over the physics: the last table.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from placer import profile as profiles
from placer.calibration.ablation.gpu_accounts import account_points, outcome_of_accounts
from placer.calibration.ablation.gpu_mechanisms import COMPILED_MECHANISMS, GPU_MECHANISMS, LEARNT, PHYSICS
from placer.calibration.ablation.mechanism import Mechanism, Outcome, is_wrong
from placer.calibration.ablation.table import Row, markdown, row, summary
from placer.calibration.published import (
    HELD_OUT_GPUS,
    PublishedStep,
    base_network,
    catalog_gpu,
    fold,
    read_compiled_pairs,
    read_steps,
    spread_pairs,
    trace_step,
)
from placer.calibration.published.networks import identity
from placer.calibration.published.samples import fitted_to
from placer.calibration.validation.elsewhere import priced_elsewhere
from placer.calibration.validation.priced_step import DEVICE_BOUND
from placer.calibration.validation.published_steps import as_published, buildable, spread_out
from placer.pricing import Prediction, gpu_profile
from placer.profile import Profile, find_gpu
from placer.tracing import Trace

#: The profile of the CPU that drives the GPUs, and that they are chosen against.
CPU = "amd-epyc-avx512-2-core"
#: Of so many published steps, one more is a step compiled by ``torch.compile``.
EAGER_FOR_ONE_COMPILED = 4
#: Kinds of steps. Those held out are in no fit: their network, their GPU, or all rows of a source without a licence.
FITTED, HELD_OUT = "device-bound, in the fit", "device-bound, held out"
HOST_BOUND, COMPILED = "host-bound (host not known)", "compiled"
#: Points of published accounts (see ``gpu_accounts``).
ACCOUNTS = 'accounts of "CPU or GPU?"'
KINDS = (FITTED, HELD_OUT, HOST_BOUND, ACCOUNTS, COMPILED)


@dataclass(frozen=True, eq=False)
class GpuStep:
    """A published step: its trace, the seconds it took on ``gpu``, and those predicted for it on the CPU."""

    published: PublishedStep
    trace: Trace
    gpu: str
    measured: float
    on_cpu: float
    kind: str = COMPILED


def gpu_outcome(folder: Path, steps: int) -> Outcome:
    """What all of ``gpu_steps`` come to, priced as things are now."""
    return outcome(gpu_steps(folder, steps))


@cache
def gpu_steps(folder: Path, most: int) -> tuple[GpuStep, ...]:
    """At most so many eager steps of ``folder``, then a quarter as many compiled ones. Equal steps share a trace.

    To be called first while no mechanism is off: all together decide what bounds a step. Those that cannot be built
    are counted by reason on stderr. Raises FileNotFoundError.
    """
    cpu = profiles.load(CPU, samples=False)
    threads = max(fit.threads for fit in cpu.fits)
    traces: dict[tuple[str, bool], Trace] = {}

    def build(step: PublishedStep, seconds: float, compiled: bool) -> GpuStep:
        gpu, key = find_gpu(catalog_gpu(step.gpu)).name, (identity(step), compiled)
        if key not in traces:
            traces[key] = trace_step(step, compiled=compiled)
        on_cpu = priced_elsewhere(traces[key], cpu, "cpu", threads, "device").step_seconds
        return GpuStep(step, traces[key], gpu, seconds, on_cpu)

    chosen = spread_out(read_steps(folder)[0], most)
    pairs = spread_pairs(read_compiled_pairs(folder), most // EAGER_FOR_ONE_COMPILED)
    eager = buildable(chosen, lambda step: build(step, step.seconds, False), "steps", _say)
    compiled = buildable(pairs, lambda pair: build(pair.eager, pair.compiled_seconds, True), "compiled steps", _say)
    return (*(replace(step, kind=_kind(step, found)) for step, found in _predicted(eager)), *compiled)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _kind(step: GpuStep, found: Prediction) -> str:
    """What bounds an eager step, and whether any fit saw it."""
    if found.components["compute"] < DEVICE_BOUND * found.step_seconds:
        return HOST_BOUND
    known = step.published
    unseen = fold(base_network(known.network)) == 0 or known.gpu in HELD_OUT_GPUS or fitted_to(known)
    return HELD_OUT if unseen else FITTED


def outcome(steps: Iterable[GpuStep]) -> Outcome:
    """What these steps come to, priced as things are now."""
    errors, wrong = [], []
    for step, found in _predicted(steps):
        errors.append(math.log(found.step_seconds / step.measured))
        wrong.append(float(is_wrong(found.step_seconds, step.measured, step.on_cpu)))
    return Outcome(np.array(errors), np.array(wrong))


def _predicted(steps: Iterable[GpuStep]) -> Iterator[tuple[GpuStep, Prediction]]:
    cpu = profiles.load(CPU, samples=False)
    known: dict[str, Profile] = {}
    for step in steps:
        if step.gpu not in known:
            known[step.gpu] = gpu_profile(step.gpu, cpu)
        profile = known[step.gpu]
        with as_published(step.published):
            found = priced_elsewhere(step.trace, profile, profile.devices()[0], 1, step.published.copies)
        yield step, found


@dataclass(frozen=True)
class Section:
    """One table: steps of a kind, what they come to with all mechanisms, and a row for each that is switched off."""

    title: str
    whole: Outcome
    rows: tuple[Row, ...]


def sections(
    kinds: Sequence[str], price: Callable[[], Outcome], mechanisms: Sequence[Mechanism], say: Callable[[str], Any]
) -> list[Section]:
    """A table for each kind: ``kinds`` are those of what ``price`` prices, as things are when it is called."""
    whole, own = price(), np.array(kinds)
    without = []
    for mechanism in mechanisms:
        with mechanism.off():
            without.append((mechanism, price()))
        say(mechanism.name)

    def of(kind: str, found: Outcome) -> Outcome:
        return Outcome(found.errors[own == kind], found.wrong[own == kind])

    return [
        Section(kind, of(kind, whole), tuple(row(each, of(kind, whole), of(kind, after)) for each, after in without))
        for kind in KINDS if kind in kinds
    ]  # fmt: skip


def gpu_tables(folder: Path, steps: int, say: Callable[[str], Any] = _say) -> Iterator[str]:
    """All tables as Markdown, line by line. Raises FileNotFoundError where ``folder`` has no published steps."""
    known, points = gpu_steps(folder, steps), account_points(folder / "accounts.jsonl")

    def of_steps(kinds: Sequence[str], mechanisms: Sequence[Mechanism]) -> list[Section]:
        some = [step for step in known if step.kind in kinds]
        return sections([step.kind for step in some], partial(outcome, some), mechanisms, say) if some else []

    found = of_steps((FITTED, HELD_OUT, HOST_BOUND), GPU_MECHANISMS)
    found += sections([ACCOUNTS] * len(points), partial(outcome_of_accounts, points), GPU_MECHANISMS, say)
    found += of_steps((COMPILED,), COMPILED_MECHANISMS)
    with LEARNT.off():
        bound = of_steps((FITTED, HELD_OUT), PHYSICS)
    found += [replace(section, title=f"{section.title}: physics alone") for section in bound]
    for section in found:
        yield f"### {section.title[0].upper()}{section.title[1:]}"
        yield ""
        yield f"With all mechanisms, {summary(section.whole)}."
        yield ""
        yield from markdown(section.rows)
        yield ""

"""The trace of a published step: what placer traces, and what the source does besides."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import replace

import torch

from placer.calibration.published.networks import timm_models, transformers_models
from placer.calibration.published.networks.build import build
from placer.calibration.published.networks.torchvision_models import load_torchvision
from placer.calibration.published.step_sources import SOURCES
from placer.calibration.published.steps import PublishedStep
from placer.errors import TraceError
from placer.tracing import OpCall, Trace, trace
from placer.workload import Workload

#: A real run of a language model of a few hundred million parameters takes up to a minute on a CPU.
LIMIT_SECONDS = 600.0


def identity(step: PublishedStep) -> str:
    """Sixteen characters that are equal for steps with equal traces."""
    source = SOURCES[step.source]
    what = (
        step.network, step.batch, step.input, step.tokens, step.dtype, step.channels_last, step.mode, step.part,
        step.attention, step.optimizer, step.optimizer is not None and step.foreach, step.zero_grad,
        step.keeps_gradients, source.loss, source.loss_timed, source.input_gradient,
        timm_models.settings(step) if step.network.startswith("timm:") else None,
    )  # fmt: skip
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]


def trace_step(step: PublishedStep, *, compiled: bool = False) -> Trace:
    """The op calls of a published step; with ``compiled``, of the same step with its model in ``torch.compile``.

    No source copies the result back to the host, so ``Trace.outputs`` is empty. Where gradients are kept from step to
    step, the backward pass adds to them; where they are cleared inside the step, that is a call for each of them. A
    loss outside the timed part has no calls. Where calls are added or left out there are no memory events, which
    number them.

    Raises:
        NotBuilt: the network cannot be built here.
        TraceError: it cannot be traced.
    """
    traced = replace(_traced(step, compiled), outputs=())
    calls = traced.calls
    if step.mode == "train" and not SOURCES[step.source].loss_timed:
        calls = tuple(call for call in calls if call.phase != "loss")
    if step.keeps_gradients:
        calls = _with_kept_gradients(traced, calls, step.zero_grad)
    return traced if calls is traced.calls else replace(traced, calls=calls, dataflow=())


def _traced(step: PublishedStep, compiled: bool) -> Trace:
    load_torchvision()
    with _as_published(step):
        try:
            return trace(_built(step, "meta", compiled))
        except TraceError:  # the step reads values, which the meta device does not have
            return trace(_built(step, "cpu", compiled), limit_seconds=LIMIT_SECONDS)


def _built(step: PublishedStep, device: str, compiled: bool) -> Workload:
    workload = build(step, device)
    return replace(workload, target=torch.compile(workload.target)) if compiled else workload


def _as_published(step: PublishedStep) -> contextlib.AbstractContextManager[None]:
    if step.network.startswith("transformers:"):
        return transformers_models.as_published()
    if step.network.startswith("timm:"):
        return timm_models.in_half_precision()
    return contextlib.nullcontext()


def _with_kept_gradients(traced: Trace, calls: tuple[OpCall, ...], cleared: bool) -> tuple[OpCall, ...]:
    """``calls`` with an addition for each gradient after the backward pass, and its clearing before all else."""
    gradients = traced.parameters
    add = tuple(OpCall("aten::add_", (g, g), (g,), (1,), phase="backward", in_place=True) for g in gradients)
    clear = tuple(OpCall("aten::zero_", (g,), (g,), phase="forward", in_place=True) for g in gradients)
    update = next((i for i, call in enumerate(calls) if call.phase == "optimizer"), len(calls))
    return (*(clear if cleared else ()), *calls[:update], *add, *calls[update:])

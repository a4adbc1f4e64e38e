"""Published whole-step times, read and cleaned: what was run, what the time includes, and how far to trust it.

The rows come from ``steps.csv.gz`` and ``e2e_neusight.csv`` of the shared collection. Rows whose time placer does not
predict are left out, each with a reason.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from placer.calibration.published.neusight_rows import neusight_rows
from placer.calibration.published.step_rows import (
    OPTIMIZERS,
    Row,
    attention_of,
    caveats_of,
    conv_tf32,
    dtype_of,
    family_of,
    input_of,
    left_out,
    network_of,
    tokens_of,
    torch_is_2,
    torch_of,
)
from placer.calibration.published.step_sources import SOURCES, StepSource


@dataclass(frozen=True)
class PublishedStep:
    """One published time of one step of a known network on one GPU.

    Attributes:
        gpu: the collection's name of the GPU, such as ``"V100 SXM 16GB"``.
        host_cpu, torch_version: None where the source does not name them.
        network: ``"timm:resnet50"``, ``"torchvision:vgg16"``, ``"transformers:bert-base-uncased"``, or a description.
        family: ``vision-conv``, ``vision-transformer``, ``language``, ``recurrent``, ``recommender``, ``speech``,
            ``detection`` or ``other``.
        batch: samples of the step.
        input: dimensions of the batch: (N, C, H, W) of images, (N, tokens) of texts, (N, tokens in the cache) of
            decoding; empty where the row does not say.
        tokens: (texts, tokens) that go with the images of an image-and-text network; else empty.
        dtype: ``float32``, ``tf32`` (convolutions and matrix products), ``float16``, ``bfloat16``, ``float64``,
            ``amp-float16`` or ``amp-bfloat16``.
        conv_tf32: float32 convolutions run in TF32, as they do by default since torch 1.7 on Ampere and later.
        attention: ``"eager"``, ``"sdpa"``, ``"flash"``, or "" for a network without attention or of unknown kind.
        part: what of a sequence model runs: ``"forward"`` all of it, ``"decode"`` one token with a key-value cache.
        optimizer: ``torch.optim``'s name in lower case; None: no update inside the step.
        foreach: the optimizer updates all parameters with multi-tensor kernels, torch's default on a GPU since 2.0.
        copies, zero_grad, keeps_gradients, benchmark, synchronised: see ``StepSource``.
        seconds: of the step. ``forward_seconds`` and ``backward_seconds``: where the source times them apart.
        caveats: what makes the time less trustworthy, in words.
        weight: one over the number of steps that measure the same network, batch, dtype and mode on the same GPU.
    """

    source: str
    gpu: str
    host_cpu: str | None
    torch_version: str | None
    network: str
    family: str
    batch: int
    input: tuple[int, ...]
    tokens: tuple[int, ...]
    dtype: str
    conv_tf32: bool
    channels_last: bool
    mode: Literal["train", "infer"]
    part: Literal["forward", "decode"]
    attention: str
    optimizer: str | None
    foreach: bool
    copies: Literal["host", "device"]
    zero_grad: bool
    keeps_gradients: bool
    benchmark: bool | None
    synchronised: bool
    seconds: float
    forward_seconds: float | None = None
    backward_seconds: float | None = None
    caveats: tuple[str, ...] = ()
    notes: str = ""
    weight: float = 1.0


@dataclass(frozen=True)
class LeftOut:
    """A row that is no ``PublishedStep``, and the reason."""

    source: str
    gpu: str
    network: str
    reason: str


def read_steps(folder: Path) -> tuple[list[PublishedStep], list[LeftOut]]:
    """The published steps in ``folder`` (``../shared/gpu-data``), and the rows left out.

    Raises:
        FileNotFoundError: ``steps.csv.gz`` or ``e2e_neusight.csv`` is not in ``folder``.
    """
    steps: list[PublishedStep] = []
    out: list[LeftOut] = []
    for row in rows_in(folder):
        reason = left_out(row)
        if reason is None:
            steps.append(step_of(row, SOURCES[row["source"]]))
        else:
            out.append(LeftOut(row["source"], row["gpu_norm"], row["network"], reason))
    return _weighted(steps), out


def rows_in(folder: Path) -> Iterator[Row]:
    """All rows in ``folder``, those that are no steps of ours included. Raises FileNotFoundError."""
    with gzip.open(folder / "steps.csv.gz", "rb") as file:
        for row in csv.DictReader(io.TextIOWrapper(file, "utf-8")):
            if row["source"] != "neusight":  # the other file has these rows unrounded, forward and backward apart
                yield row
    yield from neusight_rows(folder / "e2e_neusight.csv")


def step_of(row: Row, source: StepSource) -> PublishedStep:
    """What a row says, in our words."""
    on_device = "already on device" in row["notes"]
    train = row["mode"] == "train"
    keeps = source.keeps_gradients if source.keeps_gradients is not None else not torch_is_2(row)
    return PublishedStep(
        source=row["source"],
        gpu=row["gpu_norm"],
        host_cpu=None if row["host_cpu"] in ("unknown", "") else row["host_cpu"],
        torch_version=torch_of(row),
        network=network_of(row),
        family=family_of(row["network"]),
        batch=int(float(row["batch"])),
        input=input_of(row),
        tokens=tokens_of(row),
        dtype=dtype_of(row),
        conv_tf32=conv_tf32(row),
        channels_last=row["memory_format"] == "nhwc",
        mode="train" if train else "infer",
        part="decode" if "decode step" in row["network"] else "forward",
        attention=attention_of(row),
        optimizer=OPTIMIZERS[row["optimizer"]],
        foreach=torch_is_2(row),
        copies="device" if on_device else source.copies,
        zero_grad=train and source.zero_grad,
        keeps_gradients=train and keeps,
        benchmark=source.benchmark,
        synchronised=source.synchronised,
        seconds=float(row["step_ms"]) / 1e3,
        forward_seconds=_milliseconds(row.get("forward_ms")),
        backward_seconds=_milliseconds(row.get("backward_ms")) if train else None,
        caveats=caveats_of(row),
        notes=row["notes"],
    )


def _milliseconds(text: str | None) -> float | None:
    return float(text) / 1e3 if text else None


def _weighted(steps: Sequence[PublishedStep]) -> list[PublishedStep]:
    """Steps that repeat one another share a weight of one."""

    def what(step: PublishedStep) -> tuple[object, ...]:
        return step.gpu, step.network, step.part, step.batch, step.input, step.tokens, step.dtype, step.mode

    repeats = Counter(map(what, steps))
    return [replace(step, weight=1.0 / repeats[what(step)]) for step in steps]

"""The learnt part of the device model: a small neural network per kind of kernel, evaluated by numpy.

Two hidden layers take the dimensionless inputs of ``physics.inputs``, a few numbers of the op and a few of the GPU.
Those of an op that was not published are its family's mean; those of a GPU that was not published are zero, so that
the rest of the network, which all GPUs share, answers alone.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]

#: The fitted numbers that come with placer.
FILE = Path(__file__).parents[2] / "profile" / "catalog" / "published.json"

#: log(seconds / physics) of an op that was hardly published, and its standard deviation.
USUAL, UNTRIED_SIGMA = 0.2, 0.5


@dataclass(frozen=True, eq=False)
class Network:
    """The numbers of one kind. ``trust`` says for each label how much of the learnt part is believed, from 0 to 1.

    ``sigma`` are standard deviations of log(seconds): GPU known, GPU unknown."""

    low: Array
    high: Array
    mean: Array
    scale: Array
    gpus: Mapping[str, Array]
    labels: Mapping[str, Array]
    trust: Mapping[str, float]
    layers: tuple[tuple[Array, Array], ...]
    sigma: tuple[float, float]

    def knows(self, gpu: str) -> bool:
        """Whether published measurements of this GPU went into the network."""
        return gpu in self.gpus

    def evaluate(self, x: Array, labels: Sequence[str], gpu: str) -> tuple[Array, Array]:
        """(log of measured over physics, its standard deviation) of n rows, for n x d inputs.

        Inputs outside the range of the published ones are taken at its edge: nothing is extrapolated.
        """
        own = self.gpus.get(gpu)
        zero = np.zeros(len(next(iter(self.gpus.values()))))
        each = np.stack([self.labels[self._known(label)] for label in labels])
        z = np.hstack([
            (np.clip(x, self.low, self.high) - self.mean) / self.scale,
            np.broadcast_to(own if own is not None else zero, (len(x), len(zero))), each,
        ])  # fmt: skip
        for weight, bias in self.layers[:-1]:
            z = z @ weight + bias
            z = z / (1.0 + np.exp(-z))
        weight, bias = self.layers[-1]
        trust = np.array([self.trust.get(self._known(label), 0.0) for label in labels])
        learnt = USUAL + trust * ((z @ weight + bias)[:, 0] - USUAL)
        return learnt, np.hypot(self.sigma[own is None], (1.0 - trust) * UNTRIED_SIGMA)

    def _known(self, label: str) -> str:
        """The label itself where it was published, else its family's, else any op's."""
        family = f"{label.partition(':')[0]}:"
        return label if label in self.labels else family if family in self.labels else ""


@cache
def edition() -> float:
    """A number that changes whenever the fitted numbers that come with placer do; 0.0 without any."""
    return float(zlib.crc32(FILE.read_bytes())) if FILE.is_file() else 0.0


@cache
def networks() -> Mapping[str, Network]:
    """The networks that come with placer, by kind."""
    if not FILE.is_file():
        return {}
    document = json.loads(FILE.read_text(encoding="utf-8"))
    return {kind: _network(fields) for kind, fields in document["networks"].items()}


def _network(fields: dict[str, Any]) -> Network:
    layers = tuple((_array(layer["weight"], layer["rows"]), _array(layer["bias"])) for layer in fields["layers"])
    return Network(
        low=_array(fields["low"]), high=_array(fields["high"]), mean=_array(fields["mean"]),
        scale=_array(fields["scale"]), gpus={k: _array(v) for k, v in fields["gpus"].items()},
        labels={k: _array(v) for k, v in fields["labels"].items()}, trust=fields["trust"], layers=layers,
        sigma=(fields["sigma"][0], fields["sigma"][1]),
    )  # fmt: skip


def _array(packed: str, rows: int = 0) -> Array:
    values = np.frombuffer(base64.b64decode(packed), dtype="<f4").astype(np.float64)
    return values.reshape(rows, -1) if rows else values

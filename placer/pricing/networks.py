"""What is learnt of ops once, from everything that anybody measured, and shipped: a small network for each kind of op.

    log seconds = log physics(work, device) + network(shape, numbers(device), numbers(op)) + offset(device, op)

Physics are the maximum of named bounds (``physics`` of CPUs, ``gpu.physics``). A network has two hidden layers of SiLU.
What two devices of a kind differ in besides their rates is a few numbers, and so is what two ops differ in. A
calibration adapts those of its device and its offsets (``placer.calibration.fitting.adapt``), and
``placer.calibration.lab.published`` fits the networks.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placer.profile import FamilyFit

#: Numbers of single or double precision.
Array = NDArray[np.floating[Any]]

#: The fitted networks of CPUs that come with placer.
CPU_FILE = Path(__file__).parents[1] / "profile" / "catalog" / "cpu_networks.json"
#: Share of a number that half precision, in which files have them, may round off.
ROUNDED = 2.0**-10
#: Largest weight of 8 bits.
_MOST_OF_A_BYTE = 127


@dataclass(frozen=True, eq=False)
class Network:
    """The numbers of one kind of op.

    Attributes:
        low, high: d limits of the inputs. Beyond the range of what it was fitted to an input is taken at its edge.
        mean, scale: d numbers that the inputs are centred and divided by.
        layers: (weight, bias) of each layer; weights are inputs x outputs.
        labels: the numbers of each op, by its name; "" for any other.
        devices: the numbers of each device that it was fitted to, by name.
        trust: how much of what is learnt of an op is believed, from 0 to 1; of an op that is not in it, all.
        sigma: standard deviations of log(seconds) by op, "" for any other: of devices that it was fitted to, of others.
    """

    low: Array
    high: Array
    mean: Array
    scale: Array
    layers: tuple[tuple[Array, Array], ...]
    labels: Mapping[str, Array]
    devices: Mapping[str, Array]
    sigma: Mapping[str, tuple[float, float]]
    trust: Mapping[str, float] = field(default_factory=dict)

    @property
    def device_numbers(self) -> int:
        """How many numbers a device has."""
        return len(next(iter(self.devices.values())))

    def sigma_of(self, label: str) -> tuple[float, float]:
        """Standard deviations of log(seconds) of an op: on devices that the network was fitted to, and on others."""
        return self.sigma.get(label) or self.sigma[""]

    def covers(self, x: Array) -> NDArray[np.bool_]:
        """Which of n rows (n x d inputs) lie within what the network was fitted to, as exactly as its file says it."""
        low, high = (limit + sign * ROUNDED * (1.0 + np.abs(limit)) for limit, sign in ((self.low, -1), (self.high, 1)))
        return np.asarray(((x >= low) & (x <= high)).all(axis=1))

    def learnt(self, x: Array, labels: Sequence[str], numbers: Array) -> Array:
        """log(seconds / physics) of n rows, for n x d inputs and the ``numbers`` of one device."""
        z = self._inputs(x, labels, numbers)
        for weight, bias in self.layers[:-1]:
            z = z @ weight + bias
            z = z / (1.0 + np.exp(-z))
        weight, bias = self.layers[-1]
        return np.asarray((z @ weight + bias)[:, 0])

    def slopes(self, x: Array, labels: Sequence[str], numbers: Array) -> Array:
        """How ``learnt`` changes with each of the k numbers of the device: n x k."""
        z = self._inputs(x, labels, numbers)
        bends = []
        for weight, bias in self.layers[:-1]:
            a = z @ weight + bias
            sigmoid = 1.0 / (1.0 + np.exp(-a))
            bends.append(sigmoid * (1.0 + a * (1.0 - sigmoid)))
            z = a * sigmoid
        back = np.broadcast_to(self.layers[-1][0][:, 0], z.shape)
        for (weight, _), bend in zip(reversed(self.layers[:-1]), reversed(bends), strict=True):
            back = (back * bend) @ weight.T
        d = len(self.mean)
        return np.asarray(back[:, d : d + len(numbers)])

    def _inputs(self, x: Array, labels: Sequence[str], numbers: Array) -> Array:
        scaled = (np.clip(x, self.low, self.high) - self.mean) / self.scale
        of_op = np.stack([self.labels[label] for label in labels])
        return np.hstack([scaled, np.broadcast_to(numbers, (len(x), len(numbers))), of_op])


@cache
def cpu_document() -> Mapping[str, Any]:
    """The file of CPUs as it is; empty without it.

    ``edition``, ``starts`` by family and op, ``networks`` by family, ``classes`` by kind of CPU.
    """
    if not CPU_FILE.is_file():
        return {"edition": 0, "starts": {}, "networks": {}, "classes": {}}
    document: Mapping[str, Any] = json.loads(CPU_FILE.read_text(encoding="utf-8"))
    return document


def cpu_edition() -> int:
    """A number that changes whenever the fitted networks of CPUs do: numbers of a device are theirs alone."""
    return int(cpu_document()["edition"])


def cpu_starts(family: str, labels: Sequence[str]) -> float:
    """How many times the start of an op that computes nothing an op takes that does next to nothing.

    ``labels`` are the names it may be known by, closest first; 1.0 for an op that nothing is known of.
    """
    starts = cpu_document()["starts"].get(family, {})
    return float(next((starts[label] for label in labels if label in starts), 1.0))


@cache
def cpu_network(family: str) -> Network | None:
    """What was learnt of a family's ops on CPUs; None of a family that no network is of."""
    fields = cpu_document()["networks"].get(family)
    return None if fields is None else read_network(fields)


@cache
def cpu_class_families(kind: str) -> Mapping[str, FamilyFit]:
    """What is known of a core of a ``CpuKind`` by its name, by family; none of a kind that nobody published."""
    known = cpu_document()["classes"].get(kind, {})
    return {name: FamilyFit(tuple(each["numbers"]), each["offsets"], each["sigma"], 0) for name, each in known.items()}


def read_network(fields: Mapping[str, Any]) -> Network:
    """A network as a file has it."""
    layers = tuple((_weight(layer), unpacked(layer["bias"])) for layer in fields["layers"])
    return Network(
        low=unpacked(fields["low"]),
        high=unpacked(fields["high"]),
        mean=unpacked(fields["mean"]),
        scale=unpacked(fields["scale"]),
        layers=layers,
        labels={name: unpacked(numbers) for name, numbers in fields["labels"].items()},
        devices={name: unpacked(numbers) for name, numbers in fields["devices"].items()},
        sigma={name: (pair[0], pair[1]) for name, pair in fields["sigma"].items()},
        trust=fields.get("trust", {}),
    )


def packed_layer(weight: NDArray[Any], bias: NDArray[Any]) -> dict[str, Any]:
    """A layer as a file has it: weights (inputs x outputs) of 8 bits, times a scale for each output."""
    scale = (np.abs(weight).max(axis=0) / _MOST_OF_A_BYTE).astype("<f2").astype(np.float64)
    scale = np.where(scale > 0.0, scale, 1.0)
    rounded = np.clip(np.rint(weight / scale), -_MOST_OF_A_BYTE, _MOST_OF_A_BYTE).astype(np.int8)
    text = base64.b64encode(np.ascontiguousarray(rounded).tobytes()).decode()
    return {"rows": weight.shape[0], "weight": text, "scale": packed(scale), "bias": packed(bias)}


def _weight(layer: Mapping[str, Any]) -> Array:
    rounded = np.frombuffer(base64.b64decode(layer["weight"]), dtype=np.int8).reshape(layer["rows"], -1)
    return np.asarray(rounded * unpacked(layer["scale"]))


def packed(values: NDArray[Any]) -> str:
    """Numbers of half precision as text."""
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f2").tobytes()).decode()


def unpacked(text: str) -> Array:
    """The numbers that ``packed`` made text of."""
    return np.frombuffer(base64.b64decode(text), dtype="<f2").astype(np.float64)

"""Writes the fitted networks and what they were fitted to into the file that comes with placer."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from placer.calibration.published.samples import Sample, Table
from placer.calibration.published.training import Net, Scale, Trainer

#: Samples that show a label as much as is needed to believe half of what was learnt of it.
HALF_TRUSTED = 6.0
#: How much is believed of what its family says of an op that no sample shows.
BY_FAMILY = 0.7


def document(trainer: Trainer, chosen: Sequence[int], sigma: Mapping[str, tuple[float, float]]) -> str:
    """The file's text: networks by kind, and the number of published rows by GPU."""
    seen: dict[str, set[str]] = {kind: set() for kind in trainer.kinds}
    rows: Counter[str] = Counter()
    labels: dict[str, set[str]] = {kind: set() for kind in trainer.kinds}
    for i in chosen:
        rows[trainer.samples[i].gpu] += 1
        for j, _ in trainer.table.members[i]:
            row, gpu, _ = trainer.table.instances[j]
            seen[row.kind].add(gpu)
            labels[row.kind].add(row.label)
    believed = trust(trainer.samples, trainer.table, chosen)
    networks = {
        kind: _network(net, trainer, trainer.scales[kind], seen[kind], labels[kind], sigma[kind]) | {
            "trust": {name: believed[name] for name in sorted(with_families(labels[kind]))}
        }
        for kind, net in trainer.nets.items()
    }
    return json.dumps({"rows": dict(sorted(rows.items())), "networks": networks}, separators=(",", ":")) + "\n"


def with_families(labels: set[str]) -> set[str]:
    """``labels``, those of their families, and that of any op."""
    return {*labels, *(f"{label.partition(':')[0]}:" for label in labels), ""}


def trust(samples: Sequence[Sample], table: Table, chosen: Sequence[int]) -> dict[str, float]:
    """How much of the learnt part is believed of each label and family: near 1 where many samples show it.

    A sample shows a label by the label's share of its physical seconds: an operator in full, a step in part.
    """
    shown: Counter[str] = Counter()
    for i in chosen:
        members = table.members[i]
        seconds = [n * table.seconds[j] for j, n in members]
        total = sum(seconds)
        for (j, _), each in zip(members, seconds, strict=True):
            label = table.instances[j][0].label
            shown[label] += each / total
            shown[f"{label.partition(':')[0]}:"] += each / total
            shown[""] += each / total
    believed = {label: each / (each + HALF_TRUSTED) for label, each in sorted(shown.items())}
    return {
        label: round(each * (BY_FAMILY if not label or label.endswith(":") else 1.0), 4)
        for label, each in believed.items()
    }


def sources(samples: Sequence[Sample], chosen: Sequence[int]) -> dict[str, int]:
    """Rows fitted to, by source."""
    return dict(Counter(samples[i].source for i in chosen).most_common())


def _network(
    net: Net, trainer: Trainer, scale: Scale, gpus: set[str], labels: set[str], sigma: tuple[float, float]
) -> dict[str, Any]:
    named = with_families(labels)
    by_gpu, by_label = net.gpu.weight.detach().numpy(), net.label.weight.detach().numpy()
    return {
        "low": _packed(scale.low), "high": _packed(scale.high), "mean": _packed(scale.mean),
        "scale": _packed(scale.deviation),
        "gpus": {name: _packed(by_gpu[i]) for i, name in enumerate(trainer.gpus) if name in gpus},
        "labels": {
            name: _packed(by_label[i]) for i, name in enumerate(trainer.labels)
            if name in named
        },
        "layers": [_layer(layer) for layer in (net.first, net.second, net.last)],
        "sigma": [round(value, 4) for value in sigma],
    }  # fmt: skip


def _layer(layer: torch.nn.Linear) -> dict[str, Any]:
    weight = layer.weight.detach().numpy().T
    return {"rows": weight.shape[0], "weight": _packed(weight), "bias": _packed(layer.bias.detach().numpy())}


def _packed(values: NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f4").tobytes()).decode()

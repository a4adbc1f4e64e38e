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

from placer.calibration.published.samples import Sample
from placer.calibration.published.training import Net, Scale, Trainer


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
    networks = {
        kind: _network(net, trainer, trainer.scales[kind], seen[kind], labels[kind], sigma[kind])
        for kind, net in trainer.nets.items()
    }
    return json.dumps({"rows": dict(sorted(rows.items())), "networks": networks}, separators=(",", ":")) + "\n"


def sources(samples: Sequence[Sample], chosen: Sequence[int]) -> dict[str, int]:
    """Rows fitted to, by source."""
    return dict(Counter(samples[i].source for i in chosen).most_common())


def _network(
    net: Net, trainer: Trainer, scale: Scale, gpus: set[str], labels: set[str], sigma: tuple[float, float]
) -> dict[str, Any]:
    families = {f"{label.partition(':')[0]}:" for label in labels}
    by_gpu, by_label = net.gpu.weight.detach().numpy(), net.label.weight.detach().numpy()
    return {
        "low": _packed(scale.low), "high": _packed(scale.high), "mean": _packed(scale.mean),
        "scale": _packed(scale.deviation),
        "gpus": {name: _packed(by_gpu[i]) for i, name in enumerate(trainer.gpus) if name in gpus},
        "labels": {
            name: _packed(by_label[i]) for i, name in enumerate(trainer.labels)
            if name in labels or name in families or not name
        },
        "layers": [_layer(layer) for layer in (net.first, net.second, net.last)],
        "sigma": [round(value, 4) for value in sigma],
    }  # fmt: skip


def _layer(layer: torch.nn.Linear) -> dict[str, Any]:
    weight = layer.weight.detach().numpy().T
    return {"rows": weight.shape[0], "weight": _packed(weight), "bias": _packed(layer.bias.detach().numpy())}


def _packed(values: NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f4").tobytes()).decode()

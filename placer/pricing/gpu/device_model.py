"""Seconds of an op's kernels on a GPU that nobody measured here, from its data sheet and what others published.

    seconds = kernels x launch + physics x exp(learnt), as far as that is believed

The physics are in ``physics``, the learnt part is a small network per kind of kernel (``network``), fitted by
``placer.calibration.published`` to published operator and step times. Without a network the physics stand alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from placer.lazy import cached_property
from placer.pricing.gpu.network import networks
from placer.pricing.gpu.physics import LAUNCH, Array, inputs, kernel_seconds
from placer.pricing.gpu.rows import Row, rows_of
from placer.pricing.precision import TF32, Switch, allows_tf32
from placer.pricing.prediction import Source
from placer.pricing.work import Work
from placer.profile import DataSheet, find_gpu

#: Standard deviation of log(seconds) where only physics are known.
_PHYSICS_SIGMA = 0.5
#: Times its floor that a concatenation takes at the most, as it only copies: networks that saw few of a dtype on other
#: GPUs say up to eight (docs/dev/findings.md).
_CONCATENATION, _MOST_OF_A_COPY = "elementwise:cat", 2.0
#: The switch of TF32 that each kind of row obeys.
_SWITCHES: dict[str, Switch] = {
    "product": "matmul", "convolution": "conv", "depthwise": "conv", "recurrent": "rnn"
}  # fmt: skip


class DeviceModel:
    """Prices the kernels of ops on one GPU of the catalog."""

    def __init__(self, sheet: DataSheet) -> None:
        self.sheet = sheet

    @cached_property
    def provenance(self) -> Source:
        """``published`` where operators or steps were measured on this GPU by others, else ``data sheet``."""
        return "published" if any(n.knows(self.sheet.name) for n in networks().values()) else "data sheet"

    def price(self, works: Sequence[Work]) -> tuple[list[float], list[float], list[Source]]:
        """Seconds, standard deviation of log(seconds) and source of each work."""
        rows = [(i, row) for i, work in enumerate(works) for row in rows_of(work)]
        groups: dict[tuple[str, str], list[tuple[int, Row]]] = {}
        for i, row in rows:
            groups.setdefault((row.kind, row.dtype), []).append((i, row))
        seconds, errors = [0.0] * len(works), [0.0] * len(works)
        for (kind, _), members in groups.items():
            found, sigma = self.price_rows(kind, self._dtype(members[0][1]), [row for _, row in members])
            for (i, _), each, error in zip(members, found.tolist(), sigma.tolist(), strict=True):
                seconds[i] += each
                errors[i] += each * error
        sigmas = [error / each if each else 0.0 for each, error in zip(seconds, errors, strict=True)]
        return seconds, sigmas, [self.provenance] * len(works)

    def price_rows(self, kind: str, dtype: str, rows: Sequence[Row]) -> tuple[Array, Array]:
        """(seconds, standard deviation of log(seconds)) of rows of one kind, in ``dtype``."""
        columns: Array = np.array([row.columns for row in rows])
        floor, x = inputs(kind, columns, dtype, self.sheet)
        network = networks().get(kind)
        if network is None:
            return LAUNCH + floor, np.full(len(rows), _PHYSICS_SIGMA)
        labels = [row.label for row in rows]
        learnt, sigma = network.evaluate(x, labels, self.sheet.name)
        most = np.array([_MOST_OF_A_COPY if label == _CONCATENATION else np.inf for label in labels])
        return LAUNCH + np.minimum(kernel_seconds(kind, floor, learnt), most * floor), sigma

    def _dtype(self, row: Row) -> str:
        """The row's dtype, or ``tf32`` where this process lets tensor cores multiply float32."""
        if row.dtype != "float32" or not self.sheet.tensor_tf32_tflops or self.sheet.vendor != "nvidia":
            return row.dtype
        switch = _SWITCHES.get(row.kind)
        return TF32 if switch is not None and allows_tf32(switch) else row.dtype


@lru_cache(maxsize=16)
def device_model(gpu: str) -> DeviceModel:
    """The model of a GPU by any name the catalog finds. Raises UnknownGPU."""
    return DeviceModel(find_gpu(gpu))

"""Published steps of networks compiled by ``torch.compile``, beside the same step of the same network eager."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from placer.calibration.published.samples import base_network
from placer.calibration.published.step_rows import Row, left_out
from placer.calibration.published.step_sources import SOURCES
from placer.calibration.published.steps import PublishedStep, rows_in, step_of


@dataclass(frozen=True)
class CompiledPair:
    """``eager`` and the seconds of the same step compiled: same source, GPU, torch, network, batch, dtype and mode."""

    eager: PublishedStep
    compiled_seconds: float

    @property
    def speed_up(self) -> float:
        """Seconds of the eager step over those of the compiled one."""
        return self.eager.seconds / self.compiled_seconds

    @property
    def looked_at(self) -> bool:
        """Whether the network may be looked at while the price of compiled steps is made: every second one may.

        Halves are by the network's name alone, so no network is in both.
        """
        name = base_network(self.eager.network)
        return hashlib.sha256(name.encode()).digest()[0] % 2 == 0


def read_compiled_pairs(folder: Path) -> list[CompiledPair]:
    """The pairs in ``folder`` (``../shared/gpu-data``). Raises FileNotFoundError as ``read_steps`` does."""
    rows = list(rows_in(folder))
    eager = {_what(row): row for row in rows if left_out(row) is None and row["compiled"] == "no"}
    return [
        CompiledPair(step_of(beside, SOURCES[beside["source"]]), float(row["step_ms"]) / 1e3)
        for row in rows
        if row["compiled"] == "yes" and (beside := eager.get(_what(row))) is not None
    ]


def spread_pairs(pairs: Sequence[CompiledPair], most: int) -> list[CompiledPair]:
    """At most so many, one of each network by source, GPU and torch, in an order that depends on these names alone."""
    chosen: dict[str, CompiledPair] = {}
    for pair in pairs:
        step = pair.eager
        name = f"{step.source} {step.gpu} {step.torch_version} {base_network(step.network)}"
        chosen.setdefault(hashlib.sha256(name.encode()).hexdigest(), pair)
    return [pair for _, pair in sorted(chosen.items())][:most]


def _what(row: Row) -> tuple[str, ...]:
    same = "source", "gpu_norm", "torch_version", "network", "input", "batch", "dtype", "memory_format", "mode"
    return tuple(row.get(name, "") for name in same)

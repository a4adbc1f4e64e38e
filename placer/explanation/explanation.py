"""The Explanation: plain data, complete in itself, so that it can be stored, sent and rendered later."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from placer.decision import Decision
from placer.errors import PlacerError
from placer.threads import ThreadOption

#: History of the JSON format. Readers refuse another number.
#:
#: 1 (placer 0.1): workload, choice, confidence, reason, break_even_steps, devices, layers, ops; beside them threads,
#:   thread_counts, bottlenecks, speedup, notes and machine, which a reader may ignore.
SCHEMA = 1


@dataclass(frozen=True)
class DeviceRow:
    """One device: times in seconds, memory in bytes. ``low`` and ``high`` bound a 90 % interval of the step."""

    step_seconds: float
    low: float
    high: float
    one_time_seconds: float
    total_seconds: float | None
    components: Mapping[str, float]
    peak_memory_bytes: int
    fits: bool
    coverage: float

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "components": dict(self.components)}


@dataclass(frozen=True)
class LayerRow:
    """The ops issued by one layer itself (its sub-layers have their own rows) in one phase: seconds by device."""

    name: str
    phase: str
    devices: Mapping[str, float]


@dataclass(frozen=True)
class OpRow:
    """All calls of one op. ``source`` is the weakest of their prices: calibrated, extrapolated or floor."""

    op: str
    family: str
    count: int
    devices: Mapping[str, float]
    source: str


@dataclass(frozen=True)
class Bottleneck:
    """The op (all its calls in one layer) that takes at least half of a phase on a device: seconds of it and of all."""

    device: str
    phase: str
    layer: str
    op: str
    seconds: float
    phase_seconds: float


@dataclass(frozen=True)
class Explanation:
    """What was asked, what was chosen, and what the prediction is made of.

    ``layers`` add up to ``devices[name].components["compute"]``, and so do ``ops``. ``bottlenecks`` are single ops that
    take most of a phase, ``notes`` name what is a guess. ``str()`` gives the plain text of ``placer explain``,
    ``to_json`` its JSON.
    """

    workload: Mapping[str, Any]
    decision: Decision
    devices: Mapping[str, DeviceRow]
    layers: tuple[LayerRow, ...]
    ops: tuple[OpRow, ...]
    notes: tuple[str, ...] = ()
    machine: Mapping[str, Any] = field(default_factory=dict)
    bottlenecks: tuple[Bottleneck, ...] = ()

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self, width: int = 100) -> str:
        """Plain text at most ``width`` columns wide."""
        from placer.explanation.text import render

        return render(self, width=width)

    def to_json(self) -> str:
        """Indented JSON, ending in a newline."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"

    def to_html(self) -> str:
        """One self-contained page. Raises PlacerError without jinja2 (``pip install placer[report]``)."""
        from placer.explanation.html import render

        return render(self)

    def to_dict(self) -> dict[str, Any]:
        """The documented schema 1, as plain values."""
        return {
            "schema": SCHEMA,
            "workload": dict(self.workload),
            "choice": self.decision.device,
            "confidence": self.decision.confidence,
            "reason": self.decision.reason,
            "break_even_steps": self.decision.break_even_steps,
            "devices": {name: row.to_dict() for name, row in self.devices.items()},
            "layers": [{"name": row.name, "phase": row.phase, "devices": dict(row.devices)} for row in self.layers],
            "ops": [
                {
                    "op": row.op,
                    "family": row.family,
                    "count": row.count,
                    "devices": dict(row.devices),
                    "source": row.source,
                }
                for row in self.ops
            ],
            "threads": self.decision.threads,
            "thread_counts": [vars(option) for option in self.decision.thread_options],
            "speedup": self.decision.speedup,
            "bottlenecks": [vars(row) for row in self.bottlenecks],
            "notes": list(self.notes),
            "machine": dict(self.machine),
        }

    def folded(self, depth: int) -> Explanation:
        """The same with layers deeper than ``depth`` added to the layer above them; all sums stay."""
        sums: dict[tuple[str, str], dict[str, float]] = {}
        for row in self.layers:
            name = ".".join(row.name.split(".")[:depth])
            into = sums.setdefault((name, row.phase), {})
            for device, seconds in row.devices.items():
                into[device] = into.get(device, 0.0) + seconds
        return replace(self, layers=tuple(LayerRow(*key, devices) for key, devices in sums.items()))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Explanation:
        """The inverse of ``to_dict``. Raises PlacerError for anything else."""
        if values.get("schema") != SCHEMA:
            raise PlacerError(f"an explanation of schema {values.get('schema')!r} cannot be read, only {SCHEMA}")
        try:
            return cls(
                workload=dict(values["workload"]),
                decision=Decision(
                    device=values["choice"],
                    threads=values["threads"],
                    confidence=values["confidence"],
                    reason=values["reason"],
                    break_even_steps=values["break_even_steps"],
                    speedup=values["speedup"],
                    # Not there, as the bottlenecks, in an entry of the history that placer 0.1 wrote.
                    thread_options=tuple(ThreadOption(**row) for row in values.get("thread_counts", ())),
                ),
                devices={name: DeviceRow(**row) for name, row in values["devices"].items()},
                layers=tuple(LayerRow(**row) for row in values["layers"]),
                ops=tuple(OpRow(**row) for row in values["ops"]),
                notes=tuple(values["notes"]),
                machine=dict(values["machine"]),
                bottlenecks=tuple(Bottleneck(**row) for row in values.get("bottlenecks", ())),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise PlacerError(f"not a complete explanation: {error}") from error

"""What an Explanation holds: plain data, complete in itself, so that it can be stored, sent and rendered later."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from placer.decision import Advice, Decision, ThreadOption
from placer.errors import PlacerError
from placer.explanation.rows import ApartRow, Bottleneck, DeviceRow, LayerRow, OpRow, PartRow, SpanRow

if TYPE_CHECKING:
    from typing_extensions import Self

#: History of the JSON format. Readers refuse another number.
#:
#: 1 (placer 0.1): workload, choice, confidence, reason, break_even_steps, devices, layers, ops; beside them threads,
#:   thread_counts, bottlenecks, speedup, notes, machine, bounds, advice and timeline, which a reader may ignore. Later:
#:   verdict, of each device one_time and bounded_by, and of a job parts and apart. Then: objective, and of each device
#:   watts and dollars_per_hour.
SCHEMA = 1


@dataclass(frozen=True)
class ExplanationData:
    """What was asked, what was chosen, and what the prediction is made of. Times are in seconds.

    ``layers`` add up to ``devices[name].components["compute"]``, and so do ``ops`` and ``bounds[name]`` (what limits
    the ops: arithmetic, memory, overhead, optimizer). ``notes`` name what is a guess. ``advice`` lists changes that
    would save time, with their prices, and ``bottlenecks`` single ops that take most of a phase. ``timeline`` says
    when the host and the device do what. Of a job, a step is the whole job: ``parts`` are what it is made of, and
    ``apart`` says how they would run faster on several devices (None: no way was found).
    """

    workload: Mapping[str, Any]
    decision: Decision
    devices: Mapping[str, DeviceRow]
    layers: tuple[LayerRow, ...]
    ops: tuple[OpRow, ...]
    notes: tuple[str, ...] = ()
    machine: Mapping[str, Any] = field(default_factory=dict)
    bottlenecks: tuple[Bottleneck, ...] = ()
    bounds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    advice: tuple[Advice, ...] = ()
    timeline: Mapping[str, tuple[SpanRow, ...]] = field(default_factory=dict)
    parts: tuple[PartRow, ...] = ()
    apart: ApartRow | None = None

    @property
    def unit(self) -> str:
        """What a step is called: one of a job is the job."""
        return "job" if self.parts else "step"

    @property
    def one(self) -> str:
        """One of them in a sentence."""
        return "the job" if self.parts else "a step"

    def to_json(self) -> str:
        """Indented JSON, ending in a newline."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"

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
            "layers": [row.to_dict() for row in self.layers],
            "ops": [row.to_dict() for row in self.ops],
            "verdict": self.decision.verdict,
            "objective": self.decision.objective,
            "threads": self.decision.threads,
            "thread_counts": [vars(option) for option in self.decision.thread_options],
            "speedup": self.decision.speedup,
            "bottlenecks": [vars(row) for row in self.bottlenecks],
            "notes": list(self.notes),
            "machine": dict(self.machine),
            "bounds": {name: dict(parts) for name, parts in self.bounds.items()},
            "advice": [vars(row) for row in self.advice],
            "timeline": {name: [vars(row) for row in rows] for name, rows in self.timeline.items()},
            "parts": [row.to_dict() for row in self.parts],
            "apart": None if self.apart is None else self.apart.to_dict(),
        }

    def folded(self, depth: int) -> Self:
        """The same with layers deeper than ``depth`` added to the layer above them, without timeline; all sums stay."""
        sums: dict[tuple[str, str], tuple[dict[str, float], dict[str, float]]] = {}
        for row in self.layers:
            name = ".".join(row.name.split(".")[:depth])
            into = sums.setdefault((name, row.phase), ({}, {}))
            for total, added in zip(into, (row.devices, row.guessed), strict=True):
                for device, seconds in added.items():
                    total[device] = total.get(device, 0.0) + seconds
        return replace(self, layers=tuple(LayerRow(*key, *both) for key, both in sums.items()), timeline={})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
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
                    # An entry of the history that placer 0.1 wrote may lack this key and those read with ``get`` below.
                    thread_options=tuple(ThreadOption(**row) for row in values.get("thread_counts", ())),
                    objective=values.get("objective", "time"),
                ),
                devices={name: DeviceRow(**row) for name, row in values["devices"].items()},
                layers=tuple(LayerRow(**row) for row in values["layers"]),
                ops=tuple(OpRow(**row) for row in values["ops"]),
                notes=tuple(values["notes"]),
                machine=dict(values["machine"]),
                bottlenecks=tuple(Bottleneck(**row) for row in values.get("bottlenecks", ())),
                bounds={name: dict(parts) for name, parts in values.get("bounds", {}).items()},
                advice=tuple(Advice(**row) for row in values.get("advice", ())),
                timeline={n: tuple(SpanRow(**row) for row in rows) for n, rows in values.get("timeline", {}).items()},
                parts=tuple(PartRow.from_dict(row) for row in values.get("parts", ())),
                apart=ApartRow(**values["apart"]) if values.get("apart") else None,
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise PlacerError(f"not a complete explanation: {error}") from error

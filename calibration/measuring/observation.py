"""What one measured probe leaves behind, as plain numbers: written to the journal, and fitted later."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from placer.pricing import CONTEXT_SIZES, FAMILIES, Work, feature_names
from placer.profile import json_values as checked


@dataclass(frozen=True)
class OpObservation:
    """One distinct op of a probe: its features, and the mean of its corrected times over ``count`` calls.

    ``seconds`` on the device is None where no event matched: the op was priced, not measured. ``host_seconds`` is the
    median on the host; ``spread`` the inter-quartile range of the calls over their median.
    """

    family: str
    op: str
    dtype: str
    features: tuple[float, ...]
    seconds: float | None
    host_seconds: float
    spread: float
    count: int
    #: Kernels that a call runs in, on average; 0 where none was recorded. A tensor's share of an update may be a part.
    kernels: float = 0.0

    def work(self) -> Work:
        """The op as pricing describes it."""
        sizes = len(FAMILIES[self.family].sizes) + len(CONTEXT_SIZES)
        flops, moved, *rest = self.features
        return Work(self.family, self.op, self.dtype, flops, moved, tuple(rest[:sizes]), tuple(rest[sizes:]))


@dataclass(frozen=True)
class StepObservation:
    """One probe, measured on one device at one number of CPU threads; ``seconds`` is a whole step."""

    device: str
    threads: int
    family: str
    name: str
    seconds: float
    spread: float
    counts: Mapping[str, float]
    ops: tuple[OpObservation, ...]
    #: The median reading of the speed probe (seconds) around what was timed; 0 without a probe.
    reading: float = 0.0
    #: What forward and backward took beyond their ops, and the update with its ops (seconds). A phase is missing where
    #: the step does not tell its phases apart, or where one of the phase's ops was not found.
    gaps: Mapping[str, float] = field(default_factory=dict)

    def is_finite(self) -> bool:
        """Whether every time is a finite number: a clock or a recorder may be wrong."""
        times = [self.seconds, self.spread, self.reading, *self.gaps.values()]
        times += [t for op in self.ops for t in (op.seconds or 0.0, op.host_seconds, op.spread)]
        return all(map(math.isfinite, times))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> StepObservation:
        """The inverse of ``to_json``. Checks every value; raises ``json_values.UnfitError`` (a ValueError)."""
        values = checked.json_object(data, "step", tuple(f.name for f in fields(cls)))
        return cls(
            device=checked.text(values["device"], "device"),
            threads=checked.integer(values["threads"], "threads", 1),
            family=checked.text(values["family"], "family"),
            name=checked.text(values["name"], "name"),
            seconds=checked.number(values["seconds"], "seconds", 0.0),
            spread=checked.number(values["spread"], "spread", 0.0),
            counts=checked.numbers(values["counts"], "counts", 0.0),
            ops=tuple(_op_from_json(op) for op in checked.json_list(values["ops"], "ops")),
            reading=checked.number(values["reading"], "reading", 0.0),
            gaps=checked.numbers(values["gaps"], "gaps"),
        )


def _op_from_json(data: Any) -> OpObservation:
    data = {"kernels": 0.0, **data} if isinstance(data, dict) else data  # journals of before have none
    values = checked.json_object(data, "op", tuple(f.name for f in fields(OpObservation)))
    family = checked.text(values["family"], "family")
    if family not in FAMILIES:
        raise checked.UnfitError(f"family: {family!r} is none")
    features = checked.vector(values["features"], "features", 2 + len(feature_names(family)))
    seconds = values["seconds"]
    return OpObservation(
        family=family,
        op=checked.text(values["op"], "op"),
        dtype=checked.text(values["dtype"], "dtype"),
        features=tuple(features.tolist()),
        seconds=None if seconds is None else checked.number(seconds, "seconds"),
        host_seconds=checked.number(values["host_seconds"], "host_seconds"),
        spread=checked.number(values["spread"], "spread"),
        count=checked.integer(values["count"], "count", 1),
        kernels=checked.number(values["kernels"], "kernels", 0.0),
    )

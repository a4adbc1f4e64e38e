"""One step of a published network as the rows the device model prices, each with how often it occurs.

Tracing a thousand networks takes an hour, so what was counted is kept in a folder that may be deleted at any time.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from placer.calibration.published import networks
from placer.calibration.published.steps import PublishedStep
from placer.pricing import describe_step
from placer.pricing.gpu import Row, rows_of
from placer.tracing import Trace


@dataclass(frozen=True)
class CountedStep:
    """``rows`` with their counts; ``forward_ops`` and ``backward_ops`` that launch kernels; bytes of the batch."""

    rows: tuple[tuple[Row, int], ...]
    forward_ops: int
    backward_ops: int
    batch_bytes: int


def counted(step: PublishedStep, cache: Path | None = None) -> CountedStep:
    """Trace a step and count its rows, or read them from ``cache``. Raises NotBuilt where it cannot be built."""
    path = None if cache is None else cache / f"{networks.identity(step)}.json.gz"
    if path is not None and path.is_file():
        return _decoded(gzip.decompress(path.read_bytes()))
    found = count(networks.trace_step(step))
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(_encoded(found), mtime=0))
    return found


def count(trace: Trace) -> CountedStep:
    """The rows of a trace."""
    rows = Counter(row for work in describe_step(trace) for row in rows_of(work))
    launching = Counter(call.phase == "backward" for call in trace.calls if not call.view or call.in_place)
    batch = sum(t.stored_bytes for t in trace.batch)
    return CountedStep(tuple(rows.items()), launching[False], launching[True], batch)


def _encoded(step: CountedStep) -> bytes:
    rows = [[*row, n] for row, n in step.rows]
    return json.dumps([rows, step.forward_ops, step.backward_ops, step.batch_bytes]).encode()


def _decoded(data: bytes) -> CountedStep:
    rows, forward, backward, batch = json.loads(data)
    found = tuple((Row(kind, label, dtype, tuple(columns)), n) for kind, label, dtype, columns, n in rows)
    return CountedStep(found, forward, backward, batch)

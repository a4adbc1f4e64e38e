"""What an op really does, by op: its arithmetic, its memory traffic, its kernels in sequence, and its waits."""

from __future__ import annotations

from typing import NamedTuple

from placer.tracing import OpCall


class Effort(NamedTuple):
    """What one op call does, whatever runs it.

    Attributes:
        flops: arithmetic, a multiply-add counted as two.
        bytes: read and written, every pass over an operand counted.
        kernels: those that follow each other on an accelerator; each waits for the one before.
        waits: times that the host waits for an accelerator inside the op.
        cycles: of one core of a CPU, operands in its caches.
        shared: whether torch shares the op among the cores of a CPU.
    """

    flops: float
    bytes: float
    kernels: float = 1.0
    waits: float = 0.0
    cycles: float = 0.0
    shared: bool = True


def effort(call: OpCall) -> Effort | None:
    """What a call does by the table; None of an op that is not in it."""
    return None

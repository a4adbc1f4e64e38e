"""The op calls of a step in order, each with its phase, its layer and the memory that outlives its phase."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from torch import Tensor

from placer.tracing.dataflow import Connection, Dataflow
from placer.tracing.layers import Layers
from placer.tracing.liveness import Liveness
from placer.tracing.trace_data import OpCall, Phase, TensorSpec


class CallLog:
    """Append with ``record``, move on with ``end_phase``, read with ``op_calls``."""

    def __init__(self, layers: Layers) -> None:
        self.layers = layers
        self.phase: Phase = "forward"
        #: Times that the host has waited for the device so far.
        self.syncs = 0
        self._attributed = 0
        self._calls: list[OpCall] = []
        self.liveness = Liveness(self._calls.__len__)
        self._kept: dict[int, int] = {}  # bytes by call number
        self._phase_start = 0
        #: Where values are followed: for a compiled step, and for one on two devices.
        self.dataflow: Dataflow | None = None

    def __len__(self) -> int:
        """Calls recorded so far."""
        return len(self._calls)

    def record(
        self,
        op: str,
        inputs: tuple[TensorSpec, ...],
        outputs: tuple[TensorSpec, ...],
        args: tuple[Hashable, ...],
        view: bool = False,
        in_place: bool = False,
        layer: str | None = None,
    ) -> None:
        """Append one call, in the current phase and (with ``layer`` None) the layer that is running."""
        if op == "aten::detach":
            # Autograd detaches what it saves only because ops are intercepted; a real step does not. A real detach
            # (a gradient put in its place) belongs to its autograd node, which is counted.
            return
        if layer is None:
            layer = self.layers.of_backward() if self.phase == "backward" else self.layers.current
        syncs, self._attributed = self.syncs - self._attributed, self.syncs
        self._calls.append(OpCall(op, inputs, outputs, args, self.phase, layer, view, in_place, 0, syncs))

    def connect(self, reads: Iterable[Tensor | None], results: Iterable[Tensor | None]) -> None:
        """Note which tensors the call recorded last read and gave, where values are followed."""
        if self.dataflow is not None and self._calls:
            call = self._calls[-1]
            self.dataflow.connect(len(self._calls) - 1, reads, results, new=call.in_place or not call.view)

    def connections(self) -> tuple[Connection, ...]:
        """Of every call, in order; empty where values are not followed."""
        return () if self.dataflow is None else self.dataflow.connections(len(self._calls))

    def values(self, tensors: Iterable[Tensor]) -> tuple[int, ...]:
        """The values that these tensors hold now; empty where values are not followed."""
        return () if self.dataflow is None else self.dataflow.values(tensors)

    def end_phase(self, following: Phase) -> None:
        """Note which outputs of the phase are still alive, and go on to the next phase."""
        self._kept.update(self.liveness.kept(self._phase_start, len(self._calls)))
        self._phase_start = len(self._calls)
        self.phase = following

    def rewind(self, count: int) -> None:
        """Forget all calls after the first ``count``."""
        del self._calls[count:]

    def op_calls(self) -> tuple[OpCall, ...]:
        """All recorded calls, in order."""
        for index, nbytes in self._kept.items():
            self._calls[index] = self._calls[index]._replace(kept_bytes=nbytes)
        self._kept.clear()
        return tuple(self._calls)

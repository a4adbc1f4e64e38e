"""What a recorder keeps of a step: its op calls, phases, syncs and Python calls."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from placer.tracing.layers import Layers
from placer.tracing.liveness import Liveness
from placer.tracing.python_calls import PythonCalls
from placer.tracing.trace_data import OpCall, Phase, TensorSpec
from placer.tracing.undo import Undo


class StepLog(TorchDispatchMode):
    """The record of one step, without the interception that fills it (see ``recorder``).

    Set ``phase`` as the step moves on, then read ``op_calls()``.
    """

    def __init__(self, layers: Layers, undo: Undo, floats: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.layers = layers
        self.undo = undo  # protects tensors with values that the step writes and that are not its own
        self.floats = floats  # small floating point constants keep their values as well
        self.phase: Phase = "forward"
        self.syncs = 0
        self.last_op = ""
        self.notes: list[str] = []
        self.original: Any = None  # the call a whole op stands for, as a functools.partial
        self._quiet = False
        self._unknown: dict[int, Any] = {}  # storages of tensors whose values a meta tensor was written into
        self.python_calls = PythonCalls()
        self._calls: list[OpCall] = []
        self.liveness = Liveness(self._calls.__len__)
        self._kept: dict[int, int] = {}
        self._phase_start = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # By default the class is wrapped to hide it from the compiler; its first call imports that: 2 seconds.
        return False

    # --- the step ---------------------------------------------------------------------------------------------------

    def end_phase(self, following: Phase) -> None:
        """Note which outputs of the phase are still alive, and go on to the next one."""
        self._kept.update(self.liveness.kept(self._phase_start, len(self._calls)))
        self._phase_start = len(self._calls)
        self.phase = following

    @property
    def count(self) -> int:
        """Calls recorded so far."""
        return len(self._calls)

    def rewind(self, count: int) -> None:
        """Forget what was recorded since ``count`` was read."""
        del self._calls[count:]

    def op_calls(self) -> tuple[OpCall, ...]:
        """What was recorded, in order."""
        for index, nbytes in self._kept.items():
            self._calls[index] = replace(self._calls[index], kept_bytes=nbytes)
        self._kept.clear()
        return tuple(self._calls)

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
        if op == "aten::detach":
            # Interception itself makes autograd detach what it saves, which no real step does; where one does (a
            # gradient put in its place) it belongs to its autograd node, which is counted.
            return
        if layer is None:
            layer = self.layers.of_backward() if self.phase == "backward" else self.layers.current
        self._calls.append(OpCall(op, inputs, outputs, args, self.phase, layer, view, in_place))

    @property
    def quiet(self) -> bool:
        """Whether ops run unseen now."""
        return self._quiet

    @contextmanager
    def silence(self, on: bool = True) -> Iterator[None]:
        """Ops in the body are no part of the step; with ``on=False`` they are again."""
        before, self._quiet = self._quiet, on
        try:
            yield
        finally:
            self._quiet = before

    def set_quiet(self, on: bool) -> None:
        """The same from here on, where begin and end are two functions."""
        self._quiet = on

    def entered_unseen(self, functions: int) -> None:
        """So many Python functions are entered by the real step, and not by its trace."""
        self.python_calls.count += functions

    def fresh(self, spec: TensorSpec) -> Tensor:
        """A tensor made by the call recorded last."""
        with self.silence(), torch._C.DisableTorchFunction():
            result = empty(spec)
            self.liveness.track(result, len(self._calls) - 1, spec.stored_bytes)
            return result

    # --- ops kept whole: a real run computes them ---------------------------------------------------------------------

    def results(self, specs: Sequence[TensorSpec], compute: Callable[[], Any] | None = None) -> tuple[Tensor, ...]:
        """The outputs of the call recorded last, which has no gradient. ``compute`` or ``original`` would make them."""
        return tuple(self.fresh(spec) for spec in specs)

    def evaluate(
        self, specs: Sequence[TensorSpec], tensors: Sequence[Tensor | None], needed: Sequence[bool]
    ) -> tuple[tuple[Tensor, ...], Tensor | None]:
        """The outputs of the call recorded last, and a tensor to save that leads to their gradients (or None)."""
        return self.results(specs), None

    def gradients(
        self, wanted: Sequence[TensorSpec | None], grads: Sequence[Tensor | None], held: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """The gradients the ``_backward`` call recorded last makes; ``held`` is what ``evaluate`` gave."""
        return tuple(None if spec is None else self.fresh(spec) for spec in wanted)

    # --- what the function mode asks ----------------------------------------------------------------------------------

    #: Where tensors are made whatever device the step names: naming one could create its context. None: as it says.
    constructor_device: str | None = "cpu"
    argument_device: str | None = "meta"

    def on_device(self, tensor: Tensor) -> bool:
        """Whether a real step has this tensor on the device being priced, so that reading it is a sync."""
        return tensor.is_meta

    def changing(self, func: Any, args: tuple[Any, ...]) -> None:
        """Called before a function that may set an attribute of a tensor."""


def empty(spec: TensorSpec) -> Tensor:
    """A meta tensor of this shape, these strides and this dtype."""
    return torch.empty_strided(spec.shape, spec.stride, dtype=getattr(torch, spec.dtype), device="meta")

"""The op calls of a step in order, each with its phase, its layer, the values it connects and the memory it keeps.

The layer of an op is the module entered in forward. Autograd numbers its nodes in the order forward creates them, so
the numbers at the module boundaries map every node of the backward pass to the layer whose forward created it.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from placer.tracing.trace_data import Connection, OpCall, Phase, TensorSpec

#: The number of the next node that this thread makes.
_next_node = torch._C._autograd._get_sequence_nr
#: The attribute of a module that has its path while it is traced.
_PATH = "_placer_path"
_NO_SEQUENCE = 2**63  # AccumulateGrad nodes carry the largest number: they run as early as possible


class Layers:
    """The layer that is running. ``calls`` counts ``nn.Module.__call__`` entries.

    ``roots`` maps names to modules: a layer has its path in its root, after the root's name where there are several.
    ``others``: modules that are part of none count too, by their class.
    """

    def __init__(self, roots: Mapping[str, nn.Module], others: bool = False) -> None:
        self.calls = 0
        self.paused = False  # modules entered while a fused op is computed are no part of the step
        self.stack: list[str] = [""]
        #: The innermost layer that an exception left since the last one was entered.
        self.failed: str | None = None
        self._others = others
        self._paths: dict[int, str] = {}  # by the number of the first node, in ascending order
        self._starts: list[int] = []  # the same numbers, to look them up
        self._owners: dict[int, str] = {}
        for name, root in roots.items():
            for path, module in root.named_modules():
                full = path if len(roots) == 1 else f"{name}.{path}" if path else name
                module.__dict__.setdefault(_PATH, full)  # with the module, so that a copy of it is that layer
                for parameter in module._parameters.values():
                    if parameter is not None:
                        self._owners.setdefault(id(parameter), full)

    @contextlib.contextmanager
    def watching(self, before: Callable[[nn.Module, Any], None] = lambda module, args: None) -> Iterator[None]:
        """Follow every module's call, by hooks of the process; ``before`` is given the module and its arguments."""

        def enter(module: nn.Module, args: Any) -> None:
            name = module.__dict__.get(_PATH, type(module).__name__ if self._others else None)
            if name is not None and not self.paused:
                before(module, args)
                self.calls += 1
                self.failed = None
                self.stack.append(name)
                self._mark(name)

        def leave(module: nn.Module, args: Any, output: Any) -> None:
            if not self.paused and (self._others or _PATH in module.__dict__):
                if sys.exc_info()[1] is not None and self.failed is None:
                    self.failed = self.current
                self.stack.pop()
                self._mark(self.current)

        handles = (
            register_module_forward_pre_hook(enter),
            register_module_forward_hook(leave, always_call=True),  # also where the script catches what it raises
        )
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    @property
    def current(self) -> str:
        """Path of the layer whose forward is running; "" outside all modules."""
        return self.stack[-1]

    def owner(self, parameter: Tensor) -> str:
        """Path of the layer that holds this parameter."""
        return self._owners.get(id(parameter), "")

    def of_backward(self) -> str:
        """The layer of the autograd node that is running now."""
        if len(self.stack) > 1:  # forward again, inside backward: activation checkpointing
            return self.stack[-1]
        node: Any = torch._C._current_autograd_node()
        if node is None:
            return ""
        number = node._sequence_nr()
        if number >= _NO_SEQUENCE:
            return self.owner(node.variable) if hasattr(node, "variable") else ""
        if len(self._starts) < len(self._paths):
            self._starts = list(self._paths)
        index = bisect_right(self._starts, number) - 1
        return self._paths[self._starts[index]] if index >= 0 else ""

    def _mark(self, path: str) -> None:
        """Assign autograd nodes made from here on to ``path``."""
        self._paths[_next_node()] = path

    def reset(self) -> None:
        """Leave all layers."""
        self.stack[:] = [""]
        self._mark("")


def describe_layer(path: str) -> str:
    """The layer as an error message names it."""
    return f"layer {path!r}" if path else "the step"


# --- the log ----------------------------------------------------------------------------------------------------------


class Dataflow:
    """Follows values through the memory that holds them while a step is recorded."""

    def __init__(self) -> None:
        self._values: dict[int, int] = {}  # by the address of the memory's owner
        self._made = 0
        self.calls: dict[int, Connection] = {}

    def connect(self, call: int, reads: Iterable[Tensor | None], results: Iterable[Tensor | None], new: bool) -> None:
        """Call number ``call`` read and gave these tensors. The results are views of what it read unless ``new``."""
        read = self.values(t for t in reads if t is not None)
        memories = [_memory(t) for t in results if t is not None]
        self.calls[call] = read, tuple([self._fresh(m) if new else self._value(m) for m in memories])

    def values(self, tensors: Iterable[Tensor]) -> tuple[int, ...]:
        """The values that these tensors hold now."""
        return tuple([self._value(_memory(t)) for t in tensors])

    def _value(self, memory: int) -> int:
        value = self._values.get(memory)
        return self._fresh(memory) if value is None else value

    def _fresh(self, memory: int) -> int:
        self._made += 1
        self._values[memory] = self._made
        return self._made


def _memory(tensor: Tensor) -> int:
    """A number that tensors share that share memory. A sparse tensor has none of its own, and shares it with none."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return -id(tensor)


class _Tracked(weakref.ref):  # type: ignore[type-arg]
    """A reference to the memory of ``nbytes`` bytes that a call made."""

    __slots__ = ("call", "nbytes")
    call: int
    nbytes: int


class CallLog:
    """Append with ``record``, move on with ``end_phase``, read with ``op_calls``.

    ``track`` follows the memory of a tensor: a storage keeps its Python object as long as it lives, so a weak reference
    to that object follows the memory. ``peak_bytes`` is the most alive at once.
    """

    def __init__(self, layers: Layers) -> None:
        self.layers = layers
        self.phase: Phase = "forward"
        #: Times that the host has waited for the device so far.
        self.syncs = 0
        self.peak_bytes = 0
        #: Where values are followed: for a compiled step.
        self.dataflow: Dataflow | None = None
        self._attributed_syncs = 0
        self._calls: list[OpCall] = []
        self._kept: dict[int, int] = {}  # bytes by call number
        self._phase_start = 0
        self._live_bytes = 0
        self._live: dict[int, _Tracked] = {}  # by id of the reference

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
            layer = self.layer()
        syncs, self._attributed_syncs = self.syncs - self._attributed_syncs, self.syncs
        self._calls.append(OpCall(op, inputs, outputs, args, self.phase, layer, view, in_place, 0, syncs))

    def layer(self) -> str:
        """Path of the layer that makes the next call."""
        return self.layers.of_backward() if self.phase == "backward" else self.layers.current

    def track(self, tensor: Tensor, spec: TensorSpec) -> None:
        """Count a fresh output of the call recorded last until its memory dies."""
        nbytes = spec.stored_bytes
        if nbytes == 0:
            return
        reference = _Tracked(tensor.untyped_storage(), self._freed)
        reference.call, reference.nbytes = len(self._calls) - 1, nbytes
        self._live[id(reference)] = reference
        self._live_bytes += nbytes
        self.peak_bytes = max(self.peak_bytes, self._live_bytes)

    def _freed(self, reference: Any) -> None:
        if self._live.pop(id(reference), None) is not None:
            self._live_bytes -= reference.nbytes

    def forget(self, gradient: Tensor | None) -> None:
        """Stop counting the memory of a parameter's gradient, which is counted elsewhere."""
        if gradient is None or gradient.layout is not torch.strided:  # a sparse one has no memory of its own
            return
        for reference in weakref.getweakrefs(gradient.untyped_storage()):
            if isinstance(reference, _Tracked) and self._live.pop(id(reference), None) is not None:
                self._live_bytes -= reference.nbytes

    def connect(self, reads: Iterable[Tensor | None], results: Iterable[Tensor | None]) -> None:
        """Note which tensors the call recorded last read and gave, where values are followed."""
        if self.dataflow is not None and self._calls:
            call = self._calls[-1]
            self.dataflow.connect(len(self._calls) - 1, reads, results, new=call.in_place or not call.view)

    def connections(self) -> tuple[Connection, ...]:
        """Of every call, in order; empty where values are not followed."""
        if self.dataflow is None:
            return ()
        return tuple([self.dataflow.calls.get(number, ((), ())) for number in range(len(self._calls))])

    def values(self, tensors: Iterable[Tensor]) -> tuple[int, ...]:
        """The values that these tensors hold now; empty where values are not followed."""
        return () if self.dataflow is None else self.dataflow.values(tensors)

    def end_phase(self, following: Phase) -> None:
        """Note which outputs of the phase are still alive, and go on to the next phase."""
        for reference in self._live.values():
            if self._phase_start <= reference.call < len(self._calls):
                self._kept[reference.call] = self._kept.get(reference.call, 0) + reference.nbytes
        self._phase_start = len(self._calls)
        self.phase = following

    def rewind(self, count: int) -> None:
        """Forget all calls after the first ``count``, and the memory that they made."""
        del self._calls[count:]
        self.syncs = self._attributed_syncs = sum(call.syncs for call in self._calls)
        for reference in list(self._live.values()):
            if reference.call >= count:
                self._freed(reference)

    def op_calls(self) -> tuple[OpCall, ...]:
        """All recorded calls, in order."""
        for index, nbytes in self._kept.items():
            self._calls[index] = self._calls[index]._replace(kept_bytes=nbytes)
        self._kept.clear()
        return tuple(self._calls)

"""What cannot run where, and why: one answer for devices of this machine, of other machines and of the catalog.

A model may be bound to the device it is on, an optimizer may exist on accelerators only, and a kind of device may lack
an op or a dtype. Each reason names the layer, the flag or the op, and what to do.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import optimizer as torch_optimizer
from torch.utils import _foreach_utils

from placer import machine, pricing
from placer.placement import Optimizers, immovable, instances
from placer.tracing import Trace, device_flags
from placer.workload import spread_over_processes

#: Modules of torch whose classes hold weights that are quantized, or laid out, for the CPU.
_PACKED_MODULES = (
    "torch.ao.nn.quantized", "torch.nn.quantized", "torch.ao.nn.intrinsic.quantized", "torch.ao.nn.sparse.quantized",
    "torch.utils.mkldnn",
)  # fmt: skip
#: How names of ops begin that take such weights.
_PACKED_OPS = (
    "quantized::", "onednn::", "mkldnn::", "aten::quantized_", "aten::_dyn_quant_", "aten::_weight_int4pack_mm_for_cpu",
)  # fmt: skip
#: Dtypes that a kind of device cannot hold.
_DTYPES_MISSING = {"mps": frozenset({"float64", "complex128"})}


class Obstacles:
    """What stands in the way of a step or a job, by device, as far as its modules, optimizers and traces tell.

    Before it is traced, ``traces`` are none, and only what modules and optimizers tell is known.
    """

    def __init__(
        self, modules: Sequence[nn.Module], optimizers: Optimizers = None, traces: Sequence[Trace] = ()
    ) -> None:
        self.bound = bound(modules)
        self._traces = traces
        flags: list[tuple[str, str]] = []
        for optimizer in instances(optimizers):
            flags += device_flags(optimizer)
        for trace in traces:
            flags += trace.optimizer_flags
        self._flags = list(dict.fromkeys(flags))

    def on(self, device: str, *, here: bool = True) -> str | None:
        """Why a device cannot run it, or must not be given it; None where it can, as far as is known.

        ``here``: it is the device of this machine that has this name. Else only its kind counts (``cuda``).
        """
        kind = machine.split_device(device)[0]
        if self.bound is not None:
            home = self.bound.home if here else machine.split_device(self.bound.home)[0]
            if home != (device if here else kind):
                return f"not to be moved: {self.bound.why}"
        for name, flag in self._flags:
            if flag == "capturable":
                supported = torch_optimizer._get_capturable_supported_devices()
            else:
                supported = _foreach_utils._get_fused_kernels_supported_devices()
            if kind not in supported:
                return f"{name} has {flag}=True, which torch has no update for on {kind}: make the optimizer without it"
        return next((why for trace in self._traces if (why := _missing(kind, trace)) is not None), None)


# --- models that are bound to a device --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bound:
    """The only device that a model can be on, by its name on this machine, and why."""

    home: str
    why: str


def bound(modules: Sequence[nn.Module]) -> Bound | None:
    """The device to which a model is bound; None for one that can be moved, or got no memory yet."""
    for module in modules:
        for path, part in module.named_modules():
            only = _only_device(part)
            if only is not None:
                device, what, remedy = only
                layer = f"layer {path!r}" if path else "the model"
                return Bound(machine.normal_device(str(device)), f"{layer} ({type(part).__name__}) {what}: {remedy}")
        spread = spread_over_processes(module)
        if spread is not None:
            first = next((str(tensor.device) for tensor in module.parameters()), "cpu")
            return Bound(machine.normal_device(first), spread)
    left = immovable(modules)
    if left is None:
        return None
    begins, why = left
    return None if begins is None else Bound(begins, why)


def _only_device(part: nn.Module) -> tuple[torch.device, str, str] | None:
    """The only device that a module runs on, what it is that binds it, and what to do; None where it may be moved."""
    kind = type(part)
    if kind.__module__.startswith(_PACKED_MODULES):
        what = "is quantized for the CPU" if "quantized" in kind.__module__ else "is packed for the CPU"
        return torch.device("cpu"), what, "choose before that"
    if isinstance(part, nn.DataParallel) and part.device_ids:
        first = machine.normal_device(str(part.src_device_obj))
        return part.src_device_obj, f"needs its weights on {first}", "choose before it is wrapped"
    if isinstance(part, torch.jit.ScriptModule):
        device = next(_devices_of_script(part), None)
        if device is not None:
            return device, f"is TorchScript, frozen or traced for {device}", "move the model first, then make it"
    graph_modules: Any = sys.modules.get("torch.fx.graph_module")
    if graph_modules is not None and isinstance(part, graph_modules.GraphModule):
        device = next(_devices_of_program(part), None)
        if device is not None:
            return device, f"is a program exported for {device}", "move the model first, then export it"
    return None


def _devices_of_script(module: torch.jit.ScriptModule) -> Iterator[torch.device]:
    """The devices that are constants of a script's graph, of its weights when it was frozen among them."""
    graph: Any = getattr(module, "inlined_graph", None)  # none without a forward of its own
    if graph is None:
        return
    if graph.findNode("prim::ConstantMKLDNNTensor") is not None:
        yield torch.device("cpu")
    for node in graph.findAllNodes("prim::Constant"):
        constant = node.output()
        kind = str(constant.type())
        if kind == "Tensor" and node.hasAttribute("value") and node.t("value").dim():
            yield node.t("value").device
        elif kind == "Device" and not all(_moves_a_number(use.user) for use in constant.uses()):
            yield torch.device(node.s("value"))


def _moves_a_number(node: Any) -> bool:
    """Whether a node moves a tensor without dimensions, which ops take on any device."""
    if node.kind() != "aten::to":
        return False
    moved = next(iter(node.inputs())).node()
    return bool(moved.kind() == "prim::Constant" and moved.hasAttribute("value") and not moved.t("value").dim())


def _devices_of_program(module: Any) -> Iterator[torch.device]:
    """The devices that the nodes of an exported program name, and of its constants."""
    for node in module.graph.nodes:
        for value in (*node.args, *node.kwargs.values()):
            if isinstance(value, torch.device):
                yield value
    for value in vars(module).values():
        if isinstance(value, Tensor) and value.dim():
            yield value.device


# --- ops and dtypes without a kernel ----------------------------------------------------------------------------------


def _missing(kind: str, trace: Trace) -> str | None:
    """What a kind of device lacks that a step needs."""
    if kind == "cpu":
        lacking = trace.missing_on_cpu
        if lacking is None:
            return None
        of_dtype, remedy = (f" for {lacking.dtype}", ": use float32") if lacking.dtype else ("", "")
        return f"the CPU has no {lacking.op}{of_dtype}{_called_in(lacking.layer)}{remedy}"
    packed = next((call for call in trace.calls if call.op.startswith(_PACKED_OPS)), None)
    if packed is not None:
        return f"{kind} has no {packed.op}{_called_in(packed.layer)}, which is for the CPU: give the float model"
    dtypes = _DTYPES_MISSING.get(kind, frozenset())
    specs = [*trace.parameters, *trace.buffers, *trace.batch]
    for call in trace.calls:
        specs += call.outputs
    dtype = next((spec.dtype for spec in specs if spec.dtype in dtypes), None) if dtypes else None
    if dtype is not None:
        return f"{kind} has no {dtype}: use float32"
    op = pricing.missing_op(trace) if kind == "mps" else None
    return None if op is None else f"{kind} has no {op}, and PYTORCH_ENABLE_MPS_FALLBACK is not set to 1"


def _called_in(layer: str) -> str:
    return f" (layer {layer!r})" if layer else ""

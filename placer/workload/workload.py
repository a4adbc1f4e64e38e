"""The data of a workload: one step of somebody's model, how many such steps will follow, and what is around the model.

That is ``torch.compile``, in which mode, and what spreads a model over processes. Nothing is compiled to tell it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Literal

import torch
from torch import Tensor, nn

from placer.lazy import cached_property
from placer.nest import distinct, tensors
from placer.workload.loading import Loading

Mode = Literal["train", "infer"]
Data = Literal["host", "pinned", "device"]
Outputs = Literal["host", "device"]


@dataclass(frozen=True, eq=False)
class Workload:
    """One step of somebody's model, and how many such steps will follow.

    ``args`` and ``kwargs`` hold the inputs: the user's own tensors, or meta float32 tensors of the shapes that were
    given, and so does ``loss_target`` what the loss compares the output with. ``mode_given`` tells a mode that the
    caller gave from one that was read off the model. ``optimizer`` is a lower-case name or an instance in train mode,
    None in infer mode and for a step function that was given none (it runs its own). ``modules`` are what a placement
    moves, and ``loss_modules``, of the loss that was given in either mode, go with them. For a step function ``mode``
    is a guess; ``Trace.mode`` says whether it trains. ``draw`` fills the weights that got no random numbers, for a step
    that has to run (see ``Undrawn``). ``epochs`` is how many the ``steps`` are, where that was said. ``outputs`` is
    where those of an inference go (see ``outputs_stay``). ``loading`` is what each step waits for, and ``loop_calls``
    how many Python functions the loop around it enters. ``inputs_assumed`` tells that nobody gave the inputs, and
    ``notes`` what else a reader of a price should know of where the workload is from.
    """

    model: Callable[..., Any]
    modules: tuple[nn.Module, ...]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    mode: Mode = "train"
    mode_given: bool = False
    loss: Callable[..., Any] | None = None
    loss_modules: tuple[nn.Module, ...] = ()
    loss_target: Any = None
    optimizer: str | torch.optim.Optimizer | None = None
    steps: int | None = None
    epochs: int | None = None
    data: Data = "host"
    outputs: Outputs | None = None
    autocast: torch.dtype | None = None
    is_step_function: bool = False
    draw: Callable[[], None] | None = None
    loading: Loading | None = None
    loop_calls: int = 0
    inputs_assumed: bool = False
    notes: tuple[str, ...] = ()

    @property
    def batch(self) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
        """All that a step is given, and a device needs a copy of: the inputs, and what the loss compares with."""
        return self.args, self.kwargs, self.loss_target

    @property
    def moved(self) -> tuple[nn.Module, ...]:
        """All modules that go where the work goes, each once."""
        return tuple({id(module): module for module in (*self.modules, *self.loss_modules)}.values())

    @property
    def optimizer_name(self) -> str | None:
        """Lower-case name of the optimizer, None when there is none."""
        if self.optimizer is None or isinstance(self.optimizer, str):
            return self.optimizer
        return type(self.optimizer).__name__.lower()

    @cached_property
    def compiled(self) -> str | None:
        """The mode of ``torch.compile`` that the model was given; None where it was not."""
        return compiled_mode(self.model)

    @property
    def may_infer(self) -> bool:
        """Whether a step that cannot train is priced as inference: nobody said that it trains."""
        return self.mode == "train" and not self.mode_given and not self.is_step_function

    @property
    def is_shape(self) -> bool:
        """Whether an input is only a shape, without values."""
        return any(tensor.is_meta for tensor in tensors(self.batch))

    def describe(self) -> dict[str, Any]:
        """Plain values, for explanations and the history."""
        return {
            "target": _name(self.model),
            "mode": self.mode,
            "inputs": self.describe_inputs(),
            **({"inputs_assumed": True} if self.inputs_assumed else {}),
            "optimizer": self.optimizer_name,
            "loss": None if self.loss is None else _name(self.loss),
            **({} if self.loss_target is None else {"loss_target": _described(self.loss_target)}),
            "steps": self.steps,
            **({} if self.epochs is None else {"epochs": self.epochs}),
            "data": self.data,
            **({} if self.outputs is None else {"outputs": self.outputs}),
            "autocast": None if self.autocast is None else str(self.autocast).removeprefix("torch."),
            **({} if self.loading is None else {"loading": vars(self.loading)}),
        }

    def describe_inputs(self) -> list[str]:
        """Shape and dtype of every input."""
        return _described((self.args, self.kwargs))


def _described(nest: Any) -> list[str]:
    """Shape and dtype of every tensor."""
    lines = []
    for tensor in tensors(nest):
        sizes = "×".join(map(str, tensor.shape)) if not tensor.is_nested else f"{tensor.size(0)} nested"
        lines.append(f"{sizes or 'scalar'} {str(tensor.dtype).removeprefix('torch.')}")
    return lines


def outputs_stay(data: str, outputs: str | None) -> bool:
    """Whether the outputs of an inference stay on the device: as was said; else where the data are there already."""
    return outputs == "device" if outputs is not None else data == "device"


def _name(model: object) -> str:
    return str(getattr(model, "__name__", type(model).__name__))


def loss_of(output: Any, loss: Callable[..., Any] | None, target: Any = None) -> Tensor | None:
    """``loss(output)``, or ``loss(output, target)`` with a ``target``.

    Without a ``loss``: the model's own (``output.loss``), else the sum of its floating outputs. None where nothing
    requires a gradient.
    """
    if loss is None:
        value = _own_loss(output)
    elif target is None:
        value = loss(output)
    else:
        value = loss(output, target)
    return value if isinstance(value, Tensor) and value.requires_grad else None


def _own_loss(output: Any) -> Tensor | None:
    model_loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(model_loss, Tensor) and model_loss.is_floating_point() and model_loss.dim() == 0:
        return model_loss
    differentiable = [t for t in distinct(output) if t.requires_grad]  # none but floating and complex ones can
    sums = [(t.real if t.is_complex() else t).sum() for t in differentiable]
    return reduce(torch.add, sums) if sums else None


#: Attributes by which the objects between a compiled callable and its backend lead on, as they were called over time.
_INNER = ("_torchdynamo_orig_backend", "_torchdynamo_orig_callable")
#: Modules around a model that spread it over processes, by the module of torch that defines them.
_DISTRIBUTED = ("torch.nn.parallel.distributed", "torch.distributed.")
#: No chain of wrappers is longer; one of backends that have every attribute would have no end.
_DEEPEST = 8


def compiled_mode(model: Callable[..., Any]) -> str | None:
    """The mode that ``torch.compile`` was given for ``model``, a module or a function; None where it was not called.

    ``"default"``, ``"reduce-overhead"``, ``"max-autotune"`` or ``"max-autotune-no-cudagraphs"``. Options that select
    CUDA graphs or tuning count as their mode. Of another backend than inductor it is ``"backend <name>"``.
    """
    if "torch._dynamo" not in sys.modules:
        return None
    context = getattr(model, "dynamo_ctx", None) if isinstance(model, nn.Module) else None
    if context is not None:
        start = getattr(context, "callback", None)
    else:
        start = _context(model._compiled_call_impl if isinstance(model, nn.Module) else model)
    return None if start is None else _mode(start)


def unwrap(model: Any) -> Any:
    """The module behind ``torch.compile`` and ``DistributedDataParallel``, which are no part of what is traced."""
    inner = getattr(model, "_orig_mod", None)
    if not isinstance(inner, nn.Module):
        inner = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else None
    return model if inner is None else unwrap(inner)


def spread_over_processes(model: nn.Module) -> str | None:
    """What spreads a model over processes, in words; None for one that is whole in this process."""
    for kind in {type(part) for part in model.modules()}:
        sharded = any(base.__module__.startswith("torch.distributed.fsdp") for base in kind.__mro__)
        if kind.__module__.startswith(_DISTRIBUTED) or sharded:
            return f"{kind.__name__} is wrapped for distributed training already: choose before that"
    tensors: Any = sys.modules.get("torch.distributed.tensor")
    if tensors is not None and any(isinstance(p, tensors.DTensor) for p in model.parameters()):
        return "its parameters are sharded over processes already: choose before that"
    return None


def compiled_inside(model: nn.Module) -> list[str]:
    """Paths of the modules inside ``model``, itself excluded, that were compiled on their own."""
    if "torch._dynamo" not in sys.modules:
        return []
    return [path for path, module in model.named_modules() if path and compiled_mode(module) is not None]


def _context(function: Any) -> Any:
    """What a wrapper made by ``torch.compile`` hands frames to: it is among the values that the wrapper closes over."""
    function = getattr(function, "__func__", function)
    if hasattr(function, "_torchdynamo_orig_callable"):
        for cell in getattr(function, "__closure__", None) or ():
            try:
                value = cell.cell_contents
            except ValueError:  # not bound
                continue
            if type(value).__name__ == "CatchErrorsWrapper":
                return value
    return None


def _mode(callback: Any) -> str:
    """The mode of the backend at the end of a chain of wrappers."""
    wrapper = callback
    for _ in range(_DEEPEST):
        inner = getattr(wrapper, _INNER[0], None) or getattr(wrapper, _INNER[1], None)
        if inner is None:
            break
        wrapper = inner
    kind = type(wrapper).__name__
    if kind == "_TorchCompileInductorWrapper":
        graphs, tuned = bool(wrapper.config.get("triton.cudagraphs")), bool(wrapper.config.get("max_autotune"))
        if tuned:
            return "max-autotune" if graphs else "max-autotune-no-cudagraphs"
        return "reduce-overhead" if graphs else "default"
    name = wrapper.compiler_name if kind == "_TorchCompileWrapper" else getattr(wrapper, "__name__", kind)
    return f"backend {name}"

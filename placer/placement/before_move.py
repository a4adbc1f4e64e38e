"""What a model was before it was moved: held during the move, so that a device that refuses it need not be asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

#: An optimizer, its name (which has no state), several, or none.
Optimizers = str | torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None


def instances(optimizers: Optimizers) -> tuple[torch.optim.Optimizer, ...]:
    """Those of ``optimizers`` that have state."""
    if isinstance(optimizers, torch.optim.Optimizer):
        return (optimizers,)
    return () if optimizers is None or isinstance(optimizers, str) else tuple(optimizers)


class BeforeMove:
    """Parameters, gradients, buffers and optimizer state as they are now. Holds their memory; copies nothing."""

    def __init__(self, modules: Iterable[nn.Module], optimizers: Optimizers = None) -> None:
        parts = [part for module in modules for part in module.modules()]
        self._parameters = {
            id(p): (p, p.data, p.grad, None if p.grad is None else p.grad.data)
            for part in parts
            for p in part._parameters.values()
            if p is not None
        }
        self._buffers = [(part, dict(part._buffers)) for part in parts]
        states = [state for one in instances(optimizers) for state in one.state.values()]
        self._states = [(state, dict(state)) for state in states if isinstance(state, dict)]

    def restore(self) -> None:
        """Put everything back: every Parameter is the same object, with the same values in the same memory."""
        for parameter, data, grad, grad_data in self._parameters.values():
            _set(parameter, data)
            if grad is not None and grad_data is not None:
                _set(grad, grad_data)
            parameter.grad = grad
        for part, buffers in self._buffers:
            part._buffers.update(buffers)
        for state, values in self._states:
            state.update(values)


def _set(tensor: Tensor, data: Tensor) -> None:
    if tensor.device == data.device:
        return
    try:
        tensor.data = data
    except (RuntimeError, TypeError):
        # A backend whose tensors are of another kind was moved to by exchanging content, and is left the same way.
        requires_grad = tensor.requires_grad
        inner = nn.Parameter(data, requires_grad=requires_grad) if isinstance(tensor, nn.Parameter) else data
        torch.utils.swap_tensors(tensor, inner)

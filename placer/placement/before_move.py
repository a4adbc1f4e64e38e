"""What a model was before it was moved: held during the move, so that a device that refuses it need not be asked."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


class BeforeMove:
    """Parameters, gradients, buffers and optimizer state as they are now. Holds their memory; copies nothing."""

    def __init__(self, modules: Iterable[nn.Module], optimizer: object = None) -> None:
        parts = [part for module in modules for part in module.modules()]
        self._parameters = {
            id(p): (p, p.data, p.grad, None if p.grad is None else p.grad.data)
            for part in parts
            for p in part._parameters.values()
            if p is not None
        }
        self._buffers = [(part, dict(part._buffers)) for part in parts]
        states = optimizer.state.items() if isinstance(optimizer, torch.optim.Optimizer) else ()
        self._states = [(state, dict(state)) for _, state in states if isinstance(state, dict)]

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

"""torchdiffeq: an ODE's right-hand side and its states.

>>> placement = choose(func, y0, t, method="dopri5")  # moves func
>>> y0, t = placement.to((y0, t))
>>> trajectory = odeint(func, y0, t, method="dopri5")
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

import placer
from placer.placed import Placement

#: Arguments of ``odeint``.
_SOLVER = ("rtol", "atol", "method", "options")


class _Solution(nn.Module):
    """The solver's whole run as a forward pass."""

    def __init__(self, func: nn.Module, adjoint: bool, options: dict[str, Any]) -> None:
        super().__init__()
        self.func = func
        self.adjoint = adjoint
        self.options = options

    def forward(self, y0: Any, t: Tensor) -> Any:
        import torchdiffeq

        solve = torchdiffeq.odeint_adjoint if self.adjoint else torchdiffeq.odeint
        return solve(self.func, y0, t, **self.options)


def choose(func: nn.Module, y0: Any, t: Tensor, *, adjoint: bool = False, **options: Any) -> Placement:
    """Predict where solving ``dy/dt = func(t, y)`` from ``y0`` over ``t`` finishes first, and move ``func`` there.

    ``rtol``, ``atol``, ``method`` and ``options`` are those of ``odeint`` (``adjoint``: of ``odeint_adjoint``). An
    adaptive solver's number of evaluations depends on the weights: the solution is run once, on a copy, to count them.
    Other arguments are those of ``placer.choose``, ``loss`` on the trajectory and ``move=False`` among them.

    Raises ValueError, TypeError for a wrong argument.
    """
    if not isinstance(func, nn.Module):
        raise TypeError(f"func must be an nn.Module, so that it can be moved, not {type(func).__name__}")
    solver_options = {name: value for name in _SOLVER if (value := options.pop(name, None)) is not None}
    solution = _Solution(func, adjoint, solver_options)
    solution.train(func.training)
    return placer.choose(solution, batch=(y0, t), **options)

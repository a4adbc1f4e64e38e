"""A mechanism that can be switched off, and what predictions come to with it and without it."""

from __future__ import annotations

import ast
import inspect
import pkgutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from placer.decision import TIE

Values: TypeAlias = NDArray[np.float64]

#: Draws of the bootstrap, and the quantiles of its interval.
DRAWS, INTERVAL = 2000, (0.05, 0.95)


@dataclass(frozen=True)
class Mechanism:
    """One thing that pricing does.

    ``off`` switches it off for as long as its context is entered. ``code`` is what is there for its sake: modules,
    classes and functions, or their names, ``package.module`` or ``package.module:name``, which may be a constant's.
    """

    name: str
    off: Callable[[], AbstractContextManager[None]]
    code: tuple[Any, ...] = ()

    @property
    def lines(self) -> int:
        """Lines of its code, comments and docstrings included."""
        return sum(map(lines_of, self.code))


@dataclass(frozen=True)
class Outcome:
    """What all steps come to: ``errors`` is log(predicted / measured) of each, in a fixed order.

    ``wrong`` has one number for each cell of a step and a GPU: 1.0 where the choice between the CPU and that GPU is
    another with the predicted time than with the measured one, and costs more than a tie's share.
    """

    errors: Values
    wrong: Values


@dataclass(frozen=True)
class Change:
    """A difference between two outcomes, and its 90 % interval by a bootstrap over the steps."""

    value: float
    low: float
    high: float

    @property
    def beyond_noise(self) -> bool:
        return self.low > 0.0 or self.high < 0.0


def lines_of(code: Any) -> int:
    """Lines of a module, class, function or constant, or of what has such a name (see ``Mechanism``).

    Those of a constant are its own and the comments right above it. Raises ValueError where a module has none so named.
    """
    found = inspect.unwrap(pkgutil.resolve_name(code)) if isinstance(code, str) else code
    if not isinstance(code, str) or inspect.ismodule(found) or inspect.isclass(found) or inspect.isfunction(found):
        return len(inspect.getsource(found).splitlines())
    module, _, name = code.partition(":")
    text = inspect.getsource(pkgutil.resolve_name(module))
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and name in _targets(node):
            lines, last = text.splitlines(), node.end_lineno or node.lineno
            first = next(n for n in range(node.lineno - 1, -1, -1) if n == 0 or not lines[n - 1].startswith("#"))
            return last - first
    raise ValueError(f"{module} has no constant {name}")


def _targets(node: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}


def is_wrong(predicted: float, measured: float, other: float) -> bool:
    """Whether the choice beside a device that takes ``other`` seconds is lost by more than a tie.

    A device takes ``measured`` seconds, and is predicted to take ``predicted``.
    """
    chosen, best = (measured if predicted <= other else other), min(measured, other)
    return chosen > best * (1.0 + TIE)


def median_error(errors: Values) -> Values:
    """The median of relative errors along the last axis, given their logs."""
    return np.asarray(np.median(np.abs(np.expm1(errors)), axis=-1))


def p90_error(errors: Values) -> Values:
    """What nine in ten relative errors stay below, along the last axis, given their logs."""
    return np.asarray(np.quantile(np.abs(np.expm1(errors)), 0.9, axis=-1))


def change(statistic: Callable[[Values], Values], before: Values, after: Values) -> Change:
    """How ``statistic``, of the last axis, differs ``after`` a mechanism is switched off.

    The same steps are drawn for both (paired).
    """
    if np.array_equal(before, after):
        return Change(0.0, 0.0, 0.0)
    picks = np.random.default_rng(0).integers(0, len(before), (DRAWS, len(before)))
    low, high = np.quantile(statistic(after[picks]) - statistic(before[picks]), INTERVAL)
    return Change(float(statistic(after) - statistic(before)), float(low), float(high))

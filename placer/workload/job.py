"""A job: several kinds of steps that repeat together, as training and its evaluation do."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from placer.workload.arguments import check_count, make_workload
from placer.workload.loading import Loading
from placer.workload.workload import Data, Mode, Outputs, Workload


class Part:
    """One kind of step in a job, and how often it runs in it.

    ``name``, ``count`` and ``workload`` are as given, checked. Arguments that ``placer.choose`` has too mean the same.

    Args:
        name: what to call it, unlike the others of its job.
        model: the step; as for ``placer.choose``, and so are ``batch``, ``mode``, ``loss``, ``target``, ``optimizer``,
            ``data``, ``outputs``, ``autocast`` and ``modules``.
        count: how often it runs each time the job does; a mean may have a fraction.
        loading: what each step waits for: a ``Loading``, or the seconds of one that is not overlapped.
        loop_calls: how many Python functions the loop around the step enters for each of them, beside the step's own: a
            library's hooks, callbacks and logging. They cost the host what the step's own functions cost.

    Raises:
        ValueError, TypeError: a wrong argument.
    """

    def __init__(
        self,
        name: str,
        model: Callable[..., Any],
        batch: Any = None,
        *,
        count: float = 1,
        loading: Loading | float | None = None,
        loop_calls: int = 0,
        mode: Mode | None = None,
        loss: Callable[..., Any] | None = None,
        target: Any = None,
        optimizer: str | torch.optim.Optimizer | None = None,
        data: Data = "host",
        outputs: Outputs | None = None,
        autocast: torch.dtype | bool | None = None,
        modules: nn.Module | Iterable[nn.Module] | None = None,
    ) -> None:
        if not isinstance(name, str) or not name.strip():
            raise TypeError(f"the name of a part must be a text that is not empty, not {name!r}")
        self.name = name
        self.count = _positive("count", count)
        if isinstance(loop_calls, bool) or not isinstance(loop_calls, int) or loop_calls < 0:
            raise ValueError(f"loop_calls must be a whole number, 0 or more, not {loop_calls!r}")
        workload = make_workload(
            model,
            batch,
            mode=mode,
            loss=loss,
            target=target,
            optimizer=optimizer,
            data=data,
            outputs=outputs,
            autocast=autocast,
            modules=modules,
        )
        self.workload: Workload = replace(workload, loading=_loading(loading), loop_calls=loop_calls)
        #: The optimizer as given: its state moves along also where the step does not train.
        self.optimizer = optimizer

    def __repr__(self) -> str:
        return f"Part({self.name!r}, count={self.count:g})"

    def changed(self, *, count: float | None = None, workload: Workload | None = None) -> Part:
        """The same part with another count or workload."""
        other = copy.copy(self)
        other.count = self.count if count is None else _positive("count", count)
        other.workload = self.workload if workload is None else workload
        return other


@dataclass(frozen=True, eq=False)
class Job:
    """Parts that run one after the other, and all of them again each time the job repeats.

    An epoch is one job: 938 training steps, then 40 of evaluation. What alternates faster is a smaller job that repeats
    more often: five steps of a critic, one of a generator.

    Args:
        parts: the ``Part`` objects, in the order in which they run.
        repeats: how often the job runs; one-time costs are spread over that. None: a long run.

    Raises:
        ValueError, TypeError: no part, two of one name, or a wrong argument.
    """

    parts: tuple[Part, ...]
    repeats: int | None = None

    def __init__(self, parts: Iterable[Part], *, repeats: int | None = None) -> None:
        in_order = (parts,) if isinstance(parts, Part) else tuple(parts)
        for part in in_order:
            if not isinstance(part, Part):
                raise TypeError(f"the parts of a job must be placer.Part objects, not {type(part).__name__}")
        if not in_order:
            raise ValueError("a job needs at least one part")
        names = [part.name for part in in_order]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"two parts of a job are called {twice!r}: give each a name of its own")
        object.__setattr__(self, "parts", in_order)
        object.__setattr__(self, "repeats", check_count("repeats", repeats))

    def part(self, name: str) -> Part:
        """The part of this name. Raises ValueError where there is none, naming those there are."""
        for part in self.parts:
            if part.name == name:
                return part
        raise ValueError(f"the job has no part {name!r}; it has: {', '.join(part.name for part in self.parts)}")

    def with_part(self, changed: Part) -> Job:
        """The same job with another part in place of the one of its name."""
        self.part(changed.name)
        parts = (changed if part.name == changed.name else part for part in self.parts)
        return Job(parts, repeats=self.repeats)

    @property
    def modules(self) -> tuple[nn.Module, ...]:
        """What a placement moves, each module once."""
        return tuple({id(module): module for part in self.parts for module in part.workload.modules}.values())

    @property
    def loss_modules(self) -> tuple[nn.Module, ...]:
        """Those of the losses that its parts were given, which move with them, each once."""
        return tuple({id(module): module for part in self.parts for module in part.workload.loss_modules}.values())

    @property
    def optimizers(self) -> tuple[torch.optim.Optimizer, ...]:
        """The optimizers whose state moves along, each once."""
        optimizers = (part.optimizer for part in self.parts)
        return tuple({id(o): o for o in optimizers if isinstance(o, torch.optim.Optimizer)}.values())


def _positive(name: str, number: Any) -> float:
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise TypeError(f"{name} must be a number above 0, not {number!r}")
    if not (number > 0 and math.isfinite(number)):
        raise ValueError(f"{name} must be above 0 and finite, not {number!r}")
    return number


def _loading(loading: Any) -> Loading | None:
    if loading is None or isinstance(loading, Loading):
        return loading
    if isinstance(loading, (int, float)):
        return Loading(loading)
    raise TypeError(
        f"loading must be a placer.Loading, or seconds, not {type(loading).__name__}; "
        "placer.Loading.of(loader) measures a DataLoader"
    )

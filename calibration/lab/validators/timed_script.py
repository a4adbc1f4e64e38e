"""Runs a script as ``python`` does and times it, without any of placer: the truth beside ``placer run``.

    python timed_script.py TIMES SCRIPT [ARGUMENT...]

writes JSON to the file TIMES. ``epochs`` are the passes over a ``DataLoader`` in which an optimizer made steps: how
many ``batches``, ``seconds`` from where the loader was asked for its iterator to the last step, ``waiting`` the seconds
of these that went by until batches were there. ``gaps`` are the seconds from one step of the busiest optimizer to its
next, without those from a model's ``eval()`` to its ``train()``.
"""

from __future__ import annotations

import json
import runpy
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.utils.data import DataLoader


@dataclass
class Epoch:
    """One pass over a loader: when it ``began``, when its newest step ``ended``, seconds ``waiting`` for batches."""

    began: float
    ended: float = 0.0
    waiting: float = 0.0
    batches: int = 0
    steps: int = 0


class TimedIterator:
    """An iterator of a loader that tells its timer of every batch; all else is the iterator's own."""

    def __init__(self, iterator: Any, epoch: Epoch, timer: Timer) -> None:
        self._iterator, self._epoch, self._timer = iterator, epoch, timer

    def __iter__(self) -> TimedIterator:
        return self

    def __len__(self) -> int:
        return len(self._iterator)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)

    def __next__(self) -> Any:
        asked = self._timer.clock()
        batch = next(self._iterator)
        self._epoch.waiting += self._timer.clock() - asked
        self._epoch.batches += 1
        self._timer.newest = self._epoch
        return batch


class Timer:
    """Times loaders, optimizers and evaluations of this process; ``newest`` is the pass that gave the last batch."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.newest: Epoch | None = None
        self._epochs: list[Epoch] = []
        self._ends: dict[int, list[float]] = {}
        self._evaluated = 0.0
        self._evaluates_since: float | None = None

    @contextmanager
    def timing(self) -> Iterator[None]:
        """While this lasts; afterwards torch is as before."""
        iterate, evaluate, train = DataLoader.__iter__, nn.Module.eval, nn.Module.train

        def timed_iterate(loader: DataLoader[Any]) -> TimedIterator:
            epoch = Epoch(self.clock())
            self._epochs.append(epoch)
            iterator = iterate(loader)
            epoch.waiting = self.clock() - epoch.began
            return TimedIterator(iterator, epoch, self)

        def timed_evaluate(module: nn.Module) -> nn.Module:
            self._evaluates_since = self.clock()
            return evaluate(module)

        def timed_train(module: nn.Module, mode: bool = True) -> nn.Module:
            if mode and self._evaluates_since is not None:
                self._evaluated += self.clock() - self._evaluates_since
                self._evaluates_since = None
            return train(module, mode)

        hook = register_optimizer_step_post_hook(self._stepped)
        places: list[tuple[Any, str, Any, Any]] = [
            (DataLoader, "__iter__", timed_iterate, iterate),
            (nn.Module, "eval", timed_evaluate, evaluate),
            (nn.Module, "train", timed_train, train),
        ]
        for place, name, timed, _ in places:
            setattr(place, name, timed)
        try:
            yield
        finally:
            hook.remove()
            for place, name, _, original in places:
                setattr(place, name, original)

    def _stepped(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        now = self.clock()
        self._evaluates_since = None  # a model that learns again without a word
        self._ends.setdefault(id(optimizer), []).append(now - self._evaluated)
        if self.newest is not None:
            self.newest.ended = now
            self.newest.steps += 1

    def times(self) -> dict[str, Any]:
        """What the file gets."""
        ends = max(self._ends.values(), key=len, default=[])
        epochs = [
            {"batches": epoch.batches, "seconds": epoch.ended - epoch.began, "waiting": epoch.waiting}
            for epoch in self._epochs
            if epoch.steps
        ]
        return {"epochs": epochs, "gaps": [after - before for before, after in pairwise(ends)]}


def main(times: str, script: str, *arguments: str) -> None:
    """Run the script and write its times."""
    sys.argv[:] = [script, *arguments]
    sys.path[0] = str(Path(script).resolve().parent)
    timer = Timer()
    with timer.timing():
        runpy.run_path(script, run_name="__main__")
    Path(times).write_text(json.dumps(timer.times()), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Tells how long a script waits for its batches, without a wrapper or a frame of its own around its loaders.

An iterator of a ``DataLoader`` sets its attribute ``_num_yielded`` to 0 when an epoch begins, reads ``_profile_name``
when it is asked for a batch, and counts ``_num_yielded`` up when it has one. While somebody watches, descriptors stand
in the place of these two. They keep the values where they always are, in the iterator, and note the time.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.utils.data.dataloader import _BaseDataLoaderIter

from placer.compiler import never_compiled

#: Passes that are kept, the newest.
RECENT = 1000


@dataclass
class Pass:
    """One pass over a ``DataLoader``: an epoch, where a model was trained meanwhile.

    Times are those of the watcher's clock, in seconds: when the first batch was ``asked`` for (``began``; earlier by
    what workers took to start, seconds that are ``starting``), when the
    first step of an optimizer had ended (``first_step``), and the newest (``last_step``; of a pass without steps, when
    the newest batch was there). ``waited`` are the seconds that the script waited for batches and their workers,
    ``waited_first`` those for the first one, and ``steps`` the steps of all optimizers. ``asked`` is, by the clock of
    waits, since when it is asked for a batch; None once that is there.
    """

    sampler: weakref.ref[Any] | None
    workers: int
    created: float = 0.0
    starting: float = 0.0
    began: float = 0.0
    batches: int = 0
    steps: int = 0
    waited: float = 0.0
    waited_first: float = 0.0
    first_step: float = 0.0
    last_step: float = 0.0
    asked: float | None = None

    def stepped(self, now: float) -> None:
        """An optimizer has made a step on its newest batch."""
        self.steps += 1
        self.last_step = now
        self.first_step = self.first_step or now

    @property
    def complete(self) -> bool:
        """Whether the loader was asked for one more batch and had none."""
        return self.asked is not None

    @property
    def length(self) -> int | None:
        """Batches of a whole pass; None where nobody knows. Asks the script's own sampler: only when it has ended."""
        if self.complete:
            return self.batches
        sampler = None if self.sampler is None else self.sampler()
        if sampler is not None:
            with contextlib.suppress(Exception):
                return len(sampler)
        return None

    @property
    def seconds(self) -> float:
        """From its begin to its last step."""
        return self.last_step - self.began

    def turns(self, *, warm: bool) -> tuple[float, float, int]:
        """Seconds of its turns, those of them waited for batches, and how many they are; ``warm``: without the
        first."""
        if not warm or self.batches < 2 or not self.first_step:
            return self.seconds, self.waited, self.batches
        return self.last_step - self.first_step, self.waited - self.waited_first, self.batches - 1


class Loaders:
    """The ``passes`` over loaders in the thread that started the watching, and the seconds ``waited`` in all.

    ``now`` is the time of passes and steps, ``clock`` that of waits: between them are the traces of the watcher.
    ``newest`` is the pass that gave the newest batch. ``forked`` tells that this process was forked from the one that
    is watched. (To ask the system for a process's id takes 4 us in a loop.)
    """

    def __init__(self, now: Callable[[], float], clock: Callable[[], float] = time.perf_counter) -> None:
        self.passes: deque[Pass] = deque(maxlen=RECENT)
        self.waited = 0.0
        self.batches = 0
        self.newest: Pass | None = None
        self.forked = False
        self.now, self.clock = now, clock
        self.thread = threading.get_ident()
        #: By the identity of their iterators. A new iterator with an old one's identity has its own pass at once.
        self.of_iterator: dict[int, Pass] = {}

    @property
    def workers(self) -> int:
        """Those that loaded the newest batch."""
        return 0 if self.newest is None else self.newest.workers

    def watch(self) -> None:
        """Note passes from now on."""
        for descriptor in (_yielded, _asked):
            descriptor.listener = self
            setattr(_BaseDataLoaderIter, descriptor.name, descriptor)

    def unwatch(self) -> None:
        """Undo ``watch``; iterators that are alive have their attributes as always."""
        for descriptor in (_yielded, _asked):
            descriptor.listener = None
            if vars(_BaseDataLoaderIter).get(descriptor.name) is descriptor:
                delattr(_BaseDataLoaderIter, descriptor.name)

    def begins(self, iterator: Any) -> None:
        """A pass begins; one that the same iterator made is over. With workers it begins again once these started."""
        before = self.of_iterator.get(id(iterator))
        if before is not None and before.workers and before.asked is None and not before.batches:
            before.starting = self.now() - before.created
            return
        sampler = None
        with contextlib.suppress(TypeError):  # not every object can be referred to weakly
            sampler = weakref.ref(iterator._index_sampler)
        if len(self.of_iterator) > RECENT:
            self.of_iterator.clear()
        begun = self.of_iterator[id(iterator)] = Pass(sampler, iterator._num_workers, self.now())
        self.passes.append(begun)


class _Attribute:
    """An attribute of iterators, kept where it always is; ``listener`` is told of it while somebody watches."""

    listener: Loaders | None = None

    def __init__(self, name: str) -> None:
        self.name = name

    def __set__(self, iterator: Any, value: Any) -> None:
        iterator.__dict__[self.name] = value

    def __delete__(self, iterator: Any) -> None:
        if iterator.__dict__.pop(self.name, self) is self:
            raise AttributeError(self.name)


class _Yielded(_Attribute):
    """The number of batches that an iterator has given, which it reads in itself, as without a descriptor.

    What is done for each batch stands here, in one function.
    """

    @never_compiled
    def __set__(self, iterator: Any, value: Any) -> None:
        iterator.__dict__["_num_yielded"] = value
        loaders = self.listener
        if loaders is None or threading.get_ident() != loaders.thread:
            return
        try:
            if not value:
                loaders.begins(iterator)
                return
            given = loaders.of_iterator.get(id(iterator))
            if given is None or given.asked is None:
                return
            seconds = loaders.clock() - given.asked
            given.asked = None
            given.waited += seconds
            given.batches += 1
            if given.batches == 1:
                given.waited_first = seconds
            if not given.steps:
                given.last_step = loaders.now()
            loaders.waited += seconds
            loaders.batches += 1
            loaders.newest = given
        except Exception:  # noqa: BLE001 - the boundary: nothing of ours may reach the script
            self.listener = None


class _Asked(_Attribute):
    """The name under which profilers show that an iterator is asked for a batch."""

    @never_compiled
    def __get__(self, iterator: Any, kind: type | None = None) -> Any:
        if iterator is None:
            return self
        loaders = self.listener
        if loaders is not None and threading.get_ident() == loaders.thread:
            try:
                asked = loaders.of_iterator.get(id(iterator))
                if asked is not None:
                    asked.asked = loaders.clock()
                    if not asked.batches:
                        asked.asked -= asked.starting
                        asked.began = loaders.now() - asked.starting
            except Exception:  # noqa: BLE001 - the boundary: nothing of ours may reach the script
                self.listener = None
        try:
            return iterator.__dict__["_profile_name"]
        except KeyError:
            raise AttributeError("_profile_name") from None


_yielded, _asked = _Yielded("_num_yielded"), _Asked("_profile_name")


def _after_fork() -> None:
    """What a forked process loads is its own."""
    for descriptor in (_yielded, _asked):
        if descriptor.listener is not None:
            descriptor.listener.forked = True
            descriptor.listener = None


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)

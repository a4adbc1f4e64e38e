"""Tells how long a script waits for its batches, without a wrapper or a frame of its own around its loaders.

An iterator of a ``DataLoader`` sets its attribute ``_num_yielded`` to 0 when an epoch begins, reads ``_profile_name``
when it is asked for a batch, and counts ``_num_yielded`` up when it has one. While somebody watches, descriptors stand
in the place of these two. They keep the values where they always are, in the iterator, and note the time.
"""

from __future__ import annotations

import contextlib
import os
import threading
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
    ``waited_first`` those for the first one, and ``steps`` the steps of all optimizers. ``complete`` tells that the
    loader had no more batches.
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
    complete: bool = False
    asked: float | None = None

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
    """The ``passes`` over loaders in the thread that started the watching, and the seconds ``waited`` in all of
    them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.passes: deque[Pass] = deque(maxlen=RECENT)
        self.waited = 0.0
        self.batches = 0
        self._clock = clock
        self._process, self._thread = os.getpid(), threading.get_ident()
        self._of_iterator: weakref.WeakKeyDictionary[Any, Pass] = weakref.WeakKeyDictionary()
        self._newest: Pass | None = None

    @property
    def workers(self) -> int:
        """Those that loaded the newest batch."""
        return 0 if self._newest is None else self._newest.workers

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

    def stepped(self, now: float) -> None:
        """An optimizer has made a step, on a batch of the pass that gave the newest one."""
        if self._newest is not None:
            self._newest.steps += 1
            self._newest.last_step = now
            self._newest.first_step = self._newest.first_step or now

    def elsewhere(self) -> bool:
        """Whether this is another process or thread than the one that is watched."""
        return threading.get_ident() != self._thread or os.getpid() != self._process

    def begins(self, iterator: Any) -> None:
        """A pass begins; one that the same iterator made before is over. With workers it begins again once they
        started."""
        before = self._of_iterator.get(iterator)
        if before is not None and before.asked is None and not before.batches:
            before.starting = self._clock() - before.created
            return
        sampler = None
        with contextlib.suppress(TypeError):  # not every object can be referred to weakly
            sampler = weakref.ref(iterator._index_sampler)
        begun = Pass(sampler, iterator._num_workers, self._clock())
        self._of_iterator[iterator] = begun
        self.passes.append(begun)

    def asked_for_batch(self, iterator: Any) -> None:
        """The script begins to wait. Until a batch is there, nobody knows whether there is one more."""
        asked = self._of_iterator.get(iterator)
        if asked is None:
            return
        asked.asked = self._clock()
        asked.complete = True
        if not asked.batches:
            asked.asked -= asked.starting
            asked.began = asked.asked

    def has_batch(self, iterator: Any) -> None:
        """The script has waited for a batch."""
        given = self._of_iterator.get(iterator)
        if given is None or given.asked is None:
            return
        now = self._clock()
        seconds = now - given.asked
        given.asked, given.complete = None, False
        given.waited += seconds
        given.batches += 1
        if given.batches == 1:
            given.waited_first = seconds
        if not given.steps:
            given.last_step = now
        self.waited += seconds
        self.batches += 1
        self._newest = given


class _Attribute:
    """An attribute of iterators, kept where it always is; ``listener`` is told of it while somebody watches."""

    listener: Loaders | None = None

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, iterator: Any, kind: type | None = None) -> Any:
        if iterator is None:
            return self
        try:
            return iterator.__dict__[self.name]
        except KeyError:
            raise AttributeError(self.name) from None

    def __set__(self, iterator: Any, value: Any) -> None:
        iterator.__dict__[self.name] = value

    def __delete__(self, iterator: Any) -> None:
        if iterator.__dict__.pop(self.name, self) is self:
            raise AttributeError(self.name)


class _Yielded(_Attribute):
    """The number of batches that an iterator has given."""

    @never_compiled
    def __set__(self, iterator: Any, value: Any) -> None:
        super().__set__(iterator, value)
        loaders = self.listener
        if loaders is None or loaders.elsewhere():
            return
        try:
            if value == 0:
                loaders.begins(iterator)
            else:
                loaders.has_batch(iterator)
        except Exception:  # noqa: BLE001 - the boundary: nothing of ours may reach the script
            self.listener = None


class _Asked(_Attribute):
    """The name under which profilers show that an iterator is asked for a batch."""

    @never_compiled
    def __get__(self, iterator: Any, kind: type | None = None) -> Any:
        loaders = self.listener
        if loaders is not None and iterator is not None and not loaders.elsewhere():
            try:
                loaders.asked_for_batch(iterator)
            except Exception:  # noqa: BLE001 - the boundary: nothing of ours may reach the script
                self.listener = None
        return super().__get__(iterator, kind)


_yielded, _asked = _Yielded("_num_yielded"), _Asked("_profile_name")

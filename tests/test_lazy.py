"""Values that are computed when they are first asked for."""

from __future__ import annotations

import threading

from placer.lazy import cached_property


class Slow:
    def __init__(self, may_go: threading.Event) -> None:
        self.may_go, self.started, self.times = may_go, threading.Event(), 0

    @cached_property
    def value(self) -> int:
        """What is computed."""
        self.times += 1
        self.started.set()
        self.may_go.wait()
        return self.times


def test_no_lock_is_held_meanwhile() -> None:
    """A child that is forked while another thread computes a value of another instance can compute its own."""
    waiting, free = Slow(threading.Event()), Slow(threading.Event())
    free.may_go.set()
    thread = threading.Thread(target=lambda: waiting.value)
    thread.start()
    waiting.started.wait()
    asking = threading.Thread(target=lambda: free.value, daemon=True)
    asking.start()
    asking.join(60)
    try:
        assert not asking.is_alive()
    finally:
        waiting.may_go.set()
        thread.join()
    assert (free.value, free.value, free.times) == (1, 1, 1)

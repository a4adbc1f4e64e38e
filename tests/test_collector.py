"""When Python's garbage collector waits, and that it goes on afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from placer.collector import without_collection


@pytest.fixture(autouse=True)
def _on() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_nothing_is_collected_in_the_body_whatever_ends_it() -> None:
    with without_collection():
        with without_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()  # the outer one ends it
    assert gc.isenabled()
    with pytest.raises(KeyError), without_collection():
        raise KeyError
    assert gc.isenabled()
    gc.disable()
    with without_collection():
        pass
    assert not gc.isenabled()  # who switched it off finds it off

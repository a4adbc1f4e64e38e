"""When Python's garbage collector waits, and that it goes on afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from torch import nn

import placer
from placer import api
from placer.collector import without_collection
from placer.profile import Profile


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


@pytest.mark.parametrize(("measure", "collects"), [("never", False), ("unsure", True), ("always", True)])
def test_a_choice_without_timed_steps_collects_nothing(
    measure: str, collects: bool, calibrated: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    real = api.answer

    def answer(*arguments: Any) -> Any:
        seen.append(gc.isenabled())
        return real(*arguments)

    monkeypatch.setattr(api, "answer", answer)
    placer.choose(nn.Linear(4, 2), (3, 4), options=placer.Options(measure=measure), devices="cpu")
    assert (seen, gc.isenabled()) == ([collects], True)

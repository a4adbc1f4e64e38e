"""What other jobs do to an accelerator is said, and not guessed at."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from placer import machine
from placer.decision.comparison import PricedPart, Table
from placer.decision.measured import BUSY, occupied, with_occupied
from placer.pricing.prediction import Prediction
from placer.profile.profile import Profile


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> dict[str, float | None]:
    """How busy each device is, and that this process uses cuda:1."""
    shares: dict[str, float | None] = {"cuda": 0.9, "cuda:1": 0.9, "cuda:2": 0.1, "cuda:3": BUSY, "mps": None}
    monkeypatch.setattr(machine, "utilization", shares.__getitem__)
    monkeypatch.setattr(machine, "has_context", lambda device: device == "cuda:1")
    return shares


def test_accelerators_that_others_keep_busy_are_named(used: dict[str, float | None]) -> None:
    assert [text.split(",")[0] for text in occupied(("cpu", "cpu:0", "cuda@server", *used))] == [
        "cuda is 90% busy with other jobs", "cuda:3 is 50% busy with other jobs",
    ]  # fmt: skip


def test_a_table_says_so_in_its_reason_and_notes(
    used: dict[str, float | None], make_prediction: Callable[..., Prediction], handmade_profile: Profile
) -> None:
    found = {"cpu": make_prediction("cpu", 2e-3), "cuda": make_prediction("cuda", 1e-3)}
    table = Table((PricedPart("", 1, found, {}),), found, handmade_profile, {}, notes=("known",))
    (told,) = occupied(found)
    after = with_occupied(table)
    assert after.decide().reason == f"{table.decide().reason}; {told}"
    assert after.notes == ("known", told)
    used["cuda"] = 0.0
    assert with_occupied(table) == table

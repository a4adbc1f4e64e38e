"""What tests of decisions share: tables of one step that is known again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from placer.decision.steps import StepIdentity
from placer.decision.table import PricedPart, Table
from placer.pricing import Prediction
from placer.profile import Profile


@pytest.fixture
def table_of(handmade_profile: Profile) -> Callable[..., Table]:
    def made(*predictions: Prediction, repeats: int | None = None) -> Table:
        found = {p.device: p for p in predictions}
        part = PricedPart("", 1, found, {}, identity=StepIdentity("key", "network", 64, "64×4 float32"))
        return Table((part,), handmade_profile, {}, repeats, notes=("known",))

    return made

"""Devices that compete in a choice, with predictions made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from placer.decision.candidates import Candidate, Candidates
from placer.pricing import Prediction
from placer.profile import Profile


def compete(monkeypatch: pytest.MonkeyPatch, predictions: Mapping[str, Prediction]) -> None:
    """Every question is between these devices, at these prices."""

    def gather(profile: Profile, *_: Any, **__: Any) -> Candidates:
        return Candidates(tuple(Candidate(name, name, profile, None, here=True) for name in predictions), profile)

    def predict(*_: Any, devices: tuple[str, ...], **__: Any) -> dict[str, Prediction]:
        return {name: predictions[name] for name in devices}

    monkeypatch.setattr("placer.api.gather", gather)
    monkeypatch.setattr("placer.decision.pipeline.predict", predict)

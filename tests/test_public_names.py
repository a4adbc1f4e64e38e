"""The public names are a promise."""

from __future__ import annotations

import pytest

import placer


def test_public_names_are_locked() -> None:
    assert sorted(placer.__all__) == [
        "CalibrationError",
        "Decision",
        "Explanation",
        "Fleet",
        "Job",
        "JobPlacement",
        "Loading",
        "Machine",
        "Options",
        "Part",
        "Placement",
        "PlacerError",
        "PlacerWarning",
        "Prediction",
        "Profile",
        "ProfileDamaged",
        "ProfileError",
        "ProfileMissing",
        "ProfileStale",
        "ProfileTooNew",
        "ProfileTooOld",
        "TargetError",
        "TimerError",
        "TraceError",
        "UnknownCPU",
        "UnknownGPU",
        "Workload",
        "__version__",
        "calibrate",
        "choose",
        "explain",
        "fleet",
        "load_profile",
    ]


@pytest.mark.parametrize("name", placer.__all__)
def test_every_public_name_loads(name: str) -> None:
    assert getattr(placer, name) is not None
    assert name in dir(placer)


def test_every_error_is_public() -> None:
    from placer import errors

    defined = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert defined <= set(placer.__all__)


def test_other_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        _ = placer.colour  # type: ignore[attr-defined]

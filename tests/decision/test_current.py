"""Which profile this machine is priced with: its calibration while it holds, else an estimate."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import pytest
from torch import nn

import placer
from placer import decision as deciding
from placer import profile
from placer.decision import current
from placer.profile import Profile


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))


@pytest.mark.parametrize(("quiet", "notices"), [("0", 1), ("", 1), ("1", 0)])
def test_the_notice_comes_once_and_can_be_silenced(quiet: str, notices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACER_QUIET", quiet)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        placements = [placer.choose(net(), (rows, 8)) for rows in (4, 400)]
        placer.explain(net(), (4, 8))
    assert [w.category for w in seen] == [placer.PlacerWarning] * notices
    assert all("; CPU times are usually " in str(w.message) for w in seen)
    assert {placement.provenance for placement in placements} == {"published"}


@pytest.mark.parametrize("arguments", [{}, {"what_if": "T4"}, {"profile": "intel-xeon-avx512-2-core"}])
def test_what_goes_wrong_with_a_profile_is_an_error_of_placers(
    arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise FileNotFoundError("/proc/cpuinfo")

    monkeypatch.setattr(current, "estimated_profile", fail)
    monkeypatch.setattr(current, "named_profile", fail)
    with pytest.raises(placer.PlacerError, match="FileNotFoundError: /proc/cpuinfo"):
        placer.explain(net(), (4, 8), **arguments)


def test_every_question_looks_at_the_profile_anew(handmade_profile: Profile) -> None:
    estimate = deciding.current_profile()
    assert estimate.estimated
    assert deciding.current_profile() is estimate
    wide = replace(handmade_profile, fits=tuple(replace(fit, interval={"base": 2.0}) for fit in handmade_profile.fits))
    high = []
    for calibration in (handmade_profile, wide):
        profile.save(calibration)
        placement = placer.choose(net(), (4, 8), devices="cpu")
        assert placement.provenance == "calibrated"
        high.append(placement.predictions["cpu"].high)
    assert high[1] > high[0]
    profile.default_path().unlink()
    with pytest.warns(placer.PlacerWarning, match="not calibrated"):
        assert placer.choose(net(), (4, 8), devices="cpu").provenance == "published"

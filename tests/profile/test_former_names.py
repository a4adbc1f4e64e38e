"""Profiles of format 3 and older use other names for the same numbers; they are read under today's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from placer.profile import load, shipped_folder
from placer.profile.former_names import FORMER, current, current_names, with_current_names

REFERENCE = shipped_folder() / "intel-xeon-avx512-2-core.json"


def test_an_amount_of_one_op_keeps_its_op() -> None:
    assert current("stale@aten::displaced") == "reuse_distance@aten::displaced"
    assert current("flops@aten::mm") == "flops@aten::mm"


def test_numbers_stay_under_their_new_names() -> None:
    assert with_current_names({"pulse_seconds": 2.0, "op_after_50us": 3.0, "step": 1.0}) == {
        "speed_probe_seconds": 2.0, "op_reuse_distance_50us": 3.0, "step": 1.0,
    }  # fmt: skip
    assert current_names(("numel", "since", "displaced")) == ("numel", "reuse_distance", "evicted")


@pytest.mark.parametrize("former", FORMER)
def test_no_name_of_today_is_a_former_one(former: str) -> None:
    assert current(FORMER[former]) == FORMER[former]


def test_a_profile_of_format_3_is_the_same_profile(tmp_path: Path) -> None:
    features = {"evicted": "displaced", "reuse_distance": "since"}
    amounts = {"evicted": "displaced", "reuse_distance": "stale"}
    counts = {new: old for old, new in FORMER.items() if old not in ("displaced", "since", "stale")}

    def formerly(values: dict[str, float], names: dict[str, str]) -> dict[str, float]:
        parts = ((name.partition("@"), value) for name, value in values.items())
        return {f"{names.get(base, base)}{at}{op}": value for (base, at, op), value in parts}

    document = json.loads(REFERENCE.read_bytes())
    document["schema"] = 3
    for fit in document["fits"]:
        fit["rates"], fit["framework"] = formerly(fit["rates"], counts), formerly(fit["framework"], counts)
        for family in fit["families"].values():
            family["feature_names"] = [features.get(name, name) for name in family["feature_names"]]
            family["parameters"] = formerly(family["parameters"], amounts)
    old = tmp_path / "old.json"
    old.write_text(json.dumps(document))
    assert "pulse_seconds" in document["fits"][0]["rates"]
    assert load(old).fits == load(REFERENCE).fits

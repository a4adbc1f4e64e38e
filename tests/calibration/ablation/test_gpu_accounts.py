"""Points of published accounts, priced as the validation of accounts prices them, and with a mechanism off."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from placer.calibration.ablation import gpu_accounts
from placer.calibration.ablation.gpu_accounts import AccountPoint, account_points, outcome_of_accounts
from placer.calibration.ablation.gpu_mechanisms import GPU_MECHANISMS
from placer.calibration.suite.accounts.small_mlp import ACCOUNTS
from placer.calibration.validation.accounts import price_point

KNOWN = [(account, point) for account in ACCOUNTS for point in account.points][:2]


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[AccountPoint, ...]:
    """Two points, on the first of which the GPU is twice as fast, on the second the CPU."""
    monkeypatch.setattr(gpu_accounts, "accounts", lambda: ACCOUNTS)
    lines = [
        json.dumps({"id": account.id, "points": [{"at": point.at, "gpu_speedup": speed_up}]})
        for (account, point), speed_up in zip(KNOWN, (2.0, 0.5), strict=True)
    ]
    collection = tmp_path / "accounts.jsonl"
    collection.write_text("\n".join(lines), encoding="utf-8")
    return account_points(collection)


def test_points_are_priced_as_by_the_validation_of_accounts(points: tuple[AccountPoint, ...]) -> None:
    assert len(points) == len(KNOWN)
    ratios = np.array([price_point(account, point).ratio for account, point in KNOWN])
    reported = np.array([2.0, 0.5])
    found = outcome_of_accounts(points)
    assert found.errors == pytest.approx(np.log(reported / ratios))
    assert found.wrong.tolist() == ((ratios >= 1.0) != (reported > 1.0)).tolist()


def test_a_mechanism_of_the_host_that_is_off_changes_them(points: tuple[AccountPoint, ...]) -> None:
    before = outcome_of_accounts(points)
    (host,) = [each for each in GPU_MECHANISMS if each.name == "host: framework between the ops"]
    with host.off():
        assert (outcome_of_accounts(points).errors < before.errors).all()
    assert outcome_of_accounts(points).errors.tolist() == before.errors.tolist()

"""Wrong usage is what a check of the arguments refuses; all else could not be done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from click.testing import Result

import placer.api
import placer.calibration
import placer.fleets
from placer import decision

Run = Callable[..., Result]
EPYC = ("--profile", "amd-epyc-2-core")


def fails(*_: Any, **__: Any) -> NoReturn:
    raise ValueError("an inner one")


def test_an_inner_error_is_no_wrong_usage(run: Run, nets: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision, "ask", fails)
    monkeypatch.setattr(placer.fleets, "rank", fails)
    monkeypatch.setattr(placer.calibration.research(), "validate", fails)
    shape = (f"{nets}:net", "--batch", "4,84", *EPYC)
    for command in (["explain", *shape], ["explain", *shape, "--sweep", "steps=1:4"], ["fleet", *shape], ["validate"]):
        error = run(*command, code=1).stderr
        assert "ValueError: an inner one (unexpected; PLACER_DEBUG=1 shows where, " in error


def test_an_error_of_the_users_model_is_no_wrong_usage(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "failing.py"
    path.write_text(
        "from torch import nn\nclass Net(nn.Module):\n    def forward(self, x): raise ValueError('my own check')\n"
    )
    for command in ("explain", "fleet"):
        assert "my own check" in run(command, f"{path}:Net", "--batch", "4,84", *EPYC, code=1).stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("validate", "--profile", ".."), "not a profile name"),
        (("validate", "--what-if", "T4"), "give --suite reference"),
        (("explain", "--device", "warp drive", "x.py:y"), "'warp drive' is not a device"),
        (("fleet", "x.py:y", "--vcpus", "few"), "--vcpus 'few'"),
        (("fleet", "x.py:y", "--vcpus", "inf"), "vcpus must be a number above 0"),
    ],
)
def test_arguments_are_checked_before_anything_is_read(run: Run, arguments: tuple[str, ...], says: str) -> None:
    assert says in run(*arguments, code=2).stderr

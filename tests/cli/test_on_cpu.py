"""``--on-cpu``: the split beside the devices, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Run = Callable[..., Result]
MODEL = """
import torch
from torch import nn

class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.users, self.items = nn.Embedding(1000, 16), nn.Embedding(2000, 16)
        self.head = nn.Linear(32, 1)

    def forward(self, rows):
        return self.head(torch.cat([self.users(rows[:, 0]), self.items(rows[:, 1])], 1))
"""


@pytest.fixture
def target(tmp_path: Path) -> str:
    path = tmp_path / "recommender.py"
    path.write_text(MODEL)
    return f"{path}:Recommender"


OPTIONS = ("--batch", "64,2:int64", "--profile", "amd-epyc-2-core", "--what-if", "T4")


def test_named_modules_stay_on_the_cpu(run: Run, target: str) -> None:
    result = run("explain", target, *OPTIONS, "--on-cpu", "users", "--on-cpu", "items", "--format", "json")
    assert list(json.loads(result.stdout)["devices"]) == ["cpu", "cuda@Tesla T4", "cuda@Tesla T4+cpu"]


def test_an_unknown_module_is_wrong_usage(run: Run, target: str) -> None:
    result = run("explain", target, *OPTIONS, "--on-cpu", "user", code=2)
    assert "did you mean 'users'?" in result.stderr


def test_a_sweep_takes_it_along(run: Run, target: str) -> None:
    result = run("explain", target, *OPTIONS, "--on-cpu", "users", "--sweep", "batch=64:128")
    assert "cuda@Tesla T4+cpu" in result.stdout


def test_it_needs_a_target(run: Run) -> None:
    result = run("explain", "--on-cpu", "users", code=2)
    assert "--on-cpu needs a TARGET" in result.stderr

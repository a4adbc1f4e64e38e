from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from placer.cli import main

NETS = """
from torch import nn
from placer import Job, Part
def build(width=16, classes=3): return nn.Sequential(nn.Linear(84, width), nn.ReLU(), nn.Linear(width, classes))
net, medium, evaluating = build(), build(256), build().eval()
wide = nn.Sequential(nn.Linear(84, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 3))
normed = nn.Sequential(nn.Linear(84, 16), nn.BatchNorm1d(16))
calls = 0
class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(84, 3)
    def forward(self, x):
        global calls
        calls += 1
        return self.layer(x)
class Failing(Counted):
    def forward(self, x): raise ValueError('my own check')
class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100, 8)
    def forward(self, ids, scale): return self.embedding(ids) * scale
def hooked():
    model = nn.Sequential(nn.Linear(84, 16))
    model.register_forward_hook(lambda *_: None)
    return model
def alone(output): return output.sum()
def job(count=100):
    acting = Part('acting', build(64), (8, 84), count=count, mode='infer')
    return Job([acting, Part('learning', build(64), (64, 84), count=10)], repeats=50)
"""


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A file with models, in a folder of its own."""
    path = tmp_path / "nets_for_cli.py"
    path.write_text(NETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield str(path)
    sys.modules.pop("nets_for_cli", None)


@pytest.fixture
def runner() -> CliRunner:
    """Keeps the two streams of a command apart, which click does by itself from 8.2 on."""
    told = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
    return CliRunner(**told)


@pytest.fixture
def run(runner: CliRunner) -> Callable[..., Result]:
    """The command, in this process. A traceback fails the test."""

    def invoke(*arguments: str, code: int = 0) -> Result:
        result = runner.invoke(main, list(arguments), prog_name="placer")
        assert result.exit_code == code, result.stdout + result.stderr
        assert result.exception is None or isinstance(result.exception, SystemExit)
        assert "Traceback" not in result.stdout + result.stderr
        if code == 1:
            assert result.stderr.startswith("placer: ")
            assert len(result.stderr.splitlines()) == 1
            assert result.stdout == ""
        return result

    return invoke

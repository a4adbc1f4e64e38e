"""What a run ends with: prices, a table and a sentence for each model."""

from __future__ import annotations

import contextlib
import itertools
import re
import runpy
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as hooks

import placer
from placer import machine
from placer.decision import history
from placer.profile.profile import Profile
from placer.run import ReportOptions, Session, watcher

Run = Callable[..., "CompletedProcess[str]"]

SCRIPT = """
import sys
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(84, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 3))

    def forward(self, x):
        return self.layers(x)

def main(steps):
    torch.manual_seed(0)
    model = Net(16)
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(steps):
        loss = nn.functional.mse_loss(model(torch.randn(32, 84)), torch.randn(32, 3))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item(), [value.double().sum().item() for value in model.state_dict().values()], torch.randn(1))

main(int(sys.argv[1]))
"""


CELL = """
import torch
net = torch.nn.Linear(84, 3)
for _ in range(3):
    out = net(torch.randn(32, 84))
"""


def train(width: int = 16, rows: int = 32, steps: int = 3) -> nn.Module:
    model = nn.Sequential(nn.Linear(84, width), nn.ReLU(), nn.Linear(width, 3))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        model(torch.randn(rows, 84)).sum().backward()
        optimizer.step()
    return model


def told(options: ReportOptions, run: Callable[[], object]) -> str:
    session = Session(options)
    session.watch()
    try:
        run()
    finally:
        session.stop()
    return session.report().to_text()


def test_a_report_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no model ran" in told(ReportOptions(), lambda: nn.Softmax(dim=-1)(torch.randn(2, 3)))
    session = Session(ReportOptions())
    session.failure = "\x1b[2J"
    session._at_exit()
    assert capsys.readouterr().err == "\nplacer: nothing was watched: \ufffd[2J\n"


def one_line(text: str) -> str:
    return " ".join(text.split())


def test_a_script_is_told_at_its_end(
    python: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.setattr(sys, "argv", ["train.py", "40"])
    runpy.run_path(str(tmp_path / "train.py"))
    done = python("-m", "placer", "run", "--profile", "intel-xeon-avx512-2-core", "--what-if", "T4", "train.py", "40")
    assert done.returncode == 0, done.stderr
    assert done.stdout == capsys.readouterr().out  # nothing was drawn, nothing was changed
    assert re.search(r"^ *model +steps +ran on +measured +cpu.* +.*T4", done.stderr, re.MULTILINE), done.stderr
    assert re.search(r"^ *Net +40 +cpu +[\d.]+ [mµ]s", done.stderr, re.MULTILINE), done.stderr
    assert "32×84 float32, training, adam" in done.stderr
    for word in ("Verdict", "Why", "Next", "The run"):
        assert re.search(rf"^{word} +\w", done.stderr, re.MULTILINE), done.stderr


def test_the_line_that_would_help_is_named(handmade_profile: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    text = one_line(told(ReportOptions(handmade_profile), lambda: train(2048, 512)))
    assert "What a step is made of" not in text
    assert re.search(r"Verdict \w+-bound; cpu: \S+× as fast as cuda, >99% sure", text)
    assert re.search(r"from \d+ steps on, the other way round", text)
    assert "one line" not in text  # it ran there

    monkeypatch.setattr(machine, "available_devices", lambda: ("cpu", "cuda"))

    def longer() -> None:
        model = train(2048, 512)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        for _ in range(2000):
            optimizer.step()

    text = one_line(told(ReportOptions(handmade_profile, explain=True), longer))
    assert "What a step is made of" in text
    assert re.search(r"Verdict \w+-bound; cuda: \S+× as fast as cpu, >99% sure", text)
    assert "one line: placement = placer.choose(model, (512, 84)), and placement.batches(loader) for the loader" in text


def test_what_helps_on_a_gpu_that_is_not_here_names_it() -> None:
    options = ReportOptions("intel-xeon-avx512-2-core", what_if=("RTX 4090",))
    text = one_line(told(options, lambda: train(1024, 256)))
    assert "the RTX 4090 would be" in text
    assert re.search(r"Next a batch of 1,024 instead of 256: .*, on the RTX 4090\)", text)


@pytest.mark.parametrize("outside", [0.05, 0.0])
def test_time_that_goes_elsewhere_is_told_from_a_busy_machine(
    handmade_profile: Profile, monkeypatch: pytest.MonkeyPatch, clock: Any, outside: float
) -> None:
    monkeypatch.setattr(watcher, "Watcher", partial(watcher.Watcher, clock))

    class Busy(nn.Linear):
        """Takes longer than it should, as beside other processes."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            clock.now += 0.02
            return super().forward(x)

    def run() -> None:
        model = Busy(84, 3)
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(4):
            clock.now += outside
            model(torch.randn(32, 84)).sum().backward()
            optimizer.step()

    text = one_line(told(ReportOptions(handmade_profile), run))
    says = "the loop takes 70.0 ms a step: 20.0 ms the model, 50.0 ms the rest of the script"
    assert (says in text) == ("the loop takes" in text) == ("Verdict script-bound" in text) == (outside > 0)


def test_a_model_that_could_not_be_priced_is_told(handmade_profile: Profile) -> None:
    class Fails(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise OSError("no such sensor")

    def run() -> None:
        with contextlib.suppress(OSError):
            Fails(4, 2)(torch.randn(3, 4))

    assert re.search(
        r"Fails Verdict not predicted: .*no such sensor", one_line(told(ReportOptions(handmade_profile), run))
    )
    assert "Sequential Verdict not predicted: " in one_line(told(ReportOptions("no such machine"), train))


def test_steps_of_a_script_tell_later_choices_of_it_and_of_other_sizes(
    calibrated: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(rows: int) -> str:
        return placer.choose(train(steps=0), (rows, 84), devices=["cpu"], move=False).reason

    def steps() -> list[dict[str, Any]]:
        return [entry for entry in history.last(99) if entry["kind"] == "steps"]

    seen = watcher.Watcher
    monkeypatch.setattr(watcher, "Watcher", partial(seen, itertools.count(step=0.5).__next__))
    monkeypatch.setattr(seen, "others_share", 0.2)
    assert "other programs had 20% of the cores" in told(ReportOptions(), lambda: train(steps=20))
    assert steps() == []
    monkeypatch.setattr(seen, "others_share", 0.1)
    told(ReportOptions("intel-xeon-avx512-2-core"), lambda: train(steps=20))  # the prices of another machine
    told(ReportOptions(), lambda: train(steps=3))  # too few
    assert steps() == []
    session = Session(ReportOptions())
    session.watch()
    train(steps=20)
    for _ in range(2):  # a notebook that asks twice
        session.report()
    session.stop()
    (entry,) = steps()
    assert (entry["device"], entry["batch"], entry["steps_timed"]) == ("cpu", 32, 19)
    assert asked(32).endswith("(recorded in earlier runs on cpu)")
    assert asked(64).endswith("at batch 32 on cpu)")


def test_a_notebook_is_told_so_far(capsys: pytest.CaptureFixture[str]) -> None:
    shells = pytest.importorskip("IPython.core.interactiveshell", reason="IPython is not installed")
    shell = shells.InteractiveShell.instance(history_length=0)
    assert shell.run_line_magic("load_ext", "placer") is None
    assert shell.run_cell(CELL).success
    capsys.readouterr()
    shell.run_line_magic("placer", "--profile intel-xeon-avx512-2-core --what-if T4")
    text = capsys.readouterr().out
    assert all(part in text for part in ("32×84 float32", "T4", "Linear"))
    shell.run_line_magic("unload_ext", "placer")
    assert not hooks._has_any_global_hook()
    assert "placer" not in shell.magics_manager.magics["line"]
    shells.InteractiveShell.clear_instance()

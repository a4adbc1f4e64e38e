"""The independent timer beside ``placer run``, and the scripts that both watch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from placer.calibration.lab.validators import scripts, timed_script
from placer.calibration.lab.validators.scripts import FOLDER, SCRIPTS, Round, ScriptRow, Times, missing
from placer.calibration.lab.validators.timed_script import Timer

#: Two epochs of three batches, with an evaluation after each.
SMALL = """
import sys
import torch
from torch.utils.data import DataLoader

class Net(torch.nn.Linear):
    pass

def main():
    model = Net(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(torch.rand(12, 4), batch_size=4, num_workers=int(sys.argv[1]))
    for epoch in range(2):
        model.train()
        for x in loader:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
        model.eval()
        for x in loader:
            model(x)

if __name__ == "__main__":
    main()
"""


class Slow(Dataset[Tensor]):
    """An item takes a second of a clock that somebody sets."""

    now = 0.0

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Tensor:
        self.now += 1.0
        return torch.rand(4)


def test_the_timer_tells_an_epoch_and_the_share_of_its_loader() -> None:
    data, model = Slow(), nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters())
    timer = Timer(lambda: data.now)
    before = DataLoader.__iter__, nn.Module.eval, nn.Module.train
    with timer.timing():
        for _ in range(2):
            model.train()
            for _batch in DataLoader(data, batch_size=2):
                data.now += 6.0
                optimizer.step()
            data.now += 100.0  # between the epochs
            model.eval()
            list(DataLoader(data, batch_size=4))
    assert (DataLoader.__iter__, nn.Module.eval, nn.Module.train) == before
    times = Times(**timer.times())
    assert list(times.epochs) == [{"batches": 4, "seconds": 32.0, "waiting": 8.0}] * 2
    assert times.loader_share == 0.25
    assert times.seconds("epoch", 4) == 32.0
    assert list(times.gaps) == [8.0, 8.0, 8.0, 108.0, 8.0, 8.0, 8.0]  # without the 8 seconds of the evaluation
    assert Times([], [1.0, 2.0, 3.0]).seconds("steps", 10) == 20.0


def test_a_script_runs_as_with_python_and_its_workers_are_waited_for(tmp_path: Path) -> None:
    script, times = tmp_path / "small.py", tmp_path / "times.json"
    script.write_text(SMALL, encoding="utf-8")
    subprocess.run([sys.executable, timed_script.__file__, times, script, "1"], check=True, timeout=200)
    written = Times(**json.loads(times.read_text(encoding="utf-8")))
    assert [epoch["batches"] for epoch in written.epochs] == [3, 3]
    assert len(written.gaps) == 5
    assert 0.0 < (written.loader_share or 0.0) < 1.0


@pytest.mark.parametrize("script", sorted(FOLDER.glob("[!_]*.py")), ids=lambda path: path.stem)
def test_a_script_knows_nothing_of_placer_and_is_listed_without_its_packages(script: Path) -> None:
    source = script.read_text(encoding="utf-8")
    assert "placer" not in source
    compile(source, str(script), "exec")
    assert script.name in {name for name, *_ in SCRIPTS.values()}
    assert "torch" not in missing(script)


def test_what_is_not_installed_is_skipped_and_what_fails_has_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "absent.py").write_text("from absent_package.part import x\nimport torch\n", encoding="utf-8")
    monkeypatch.setattr(scripts, "FOLDER", tmp_path)
    monkeypatch.setattr(scripts, "SCRIPTS", {"absent": ("absent.py",)})
    assert scripts.validate_scripts(["absent"], 1, None, None) == 1
    assert "absent: skipped: absent_package not installed" in capsys.readouterr().err
    (tmp_path / "fails.py").write_text("raise SystemExit('no more')\n", encoding="utf-8")
    monkeypatch.setattr(scripts, "SCRIPTS", {"fails": ("fails.py",)})
    (row,) = scripts.measure(["fails"], 1, None)
    assert "ended with code 1: no more" in row.cells()[1]


def test_a_row_has_the_medians_of_its_rounds() -> None:
    rounds = []
    for predicted, measured in ((2.0, 3.0), (4.0, 5.0), (9.0, 4.0)):
        devices = {"cpu": {"seconds": predicted, "low": predicted / 2, "high": predicted * 2}}
        run = {"unit": "epoch", "batches": 100, "home": "cpu", "devices": devices}
        run |= {"measured_seconds": measured, "loader_share": 0.25}
        alone = Times([{"seconds": measured, "waiting": measured / 5, "batches": 100}], [0.1, 0.2, 0.3])
        rounds.append(Round(run, alone, Times([], [0.1, 0.3, 0.4])))
    row = ScriptRow("made up", rounds)
    assert row.inside
    assert row.cells() == (
        "made up", "an epoch of 100", "4.00 s", "2.00 s to 8.00 s", "yes", "4.00 s", "4.00 s", "1.00", "25.0%",
        "20.0%", "+5.0", "1.500x",
    )  # fmt: skip


@pytest.mark.soak
def test_a_script_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small.py").write_text(SMALL, encoding="utf-8")
    monkeypatch.setattr(scripts, "FOLDER", tmp_path)
    monkeypatch.setattr(scripts, "SCRIPTS", {"small": ("small.py", "0")})
    page = tmp_path / "table.md"
    assert scripts.validate_scripts(["small"], 1, "amd-epyc-2-core", page) == 0
    assert "| small | an epoch of 3 |" in page.read_text(encoding="utf-8")

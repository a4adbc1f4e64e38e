"""Energy by zeus: counters that are not there are said to be missing, and those that are give what they counted."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from placer.errors import PlacerError
from placer.integrations import zeus

INSTALLED = pytest.mark.skipif(importlib.util.find_spec("zeus") is None, reason="zeus is not installed")
BARE = pytest.mark.skipif(
    Path("/sys/class/powercap/intel-rapl").exists() or torch.cuda.is_available(), reason="this machine has counters"
)


@INSTALLED
@BARE
@pytest.mark.parametrize(("device", "lacks"), [("cpu", "no CPU"), ("cuda", "no GPU"), ("cuda:1", "no GPU")])
def test_a_machine_without_counters_says_so(device: str, lacks: str) -> None:
    ran: list[int] = []
    with pytest.raises(PlacerError, match=rf"^not available: {lacks} whose energy can be read \("):
        zeus.measure(lambda: ran.append(1), device=device, steps=1)
    assert not ran
    assert zeus.available().startswith("no GPU whose energy can be read (")
    assert "; no CPU whose energy can be read (" in zeus.available()


def test_without_zeus_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "zeus"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "zeus", None)
    assert zeus.available().startswith("zeus cannot be imported (")
    with pytest.raises(PlacerError, match=r"^not available: zeus cannot be imported \(.*\): pip install zeus$"):
        zeus.measure(list, device="cpu")


def test_a_device_that_zeus_does_not_measure_is_said() -> None:
    with pytest.raises(PlacerError, match="not available: zeus has no counter for 'mps'"):
        zeus.measure(list, device="mps")


def test_a_gpu_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zeus, "_counters", lambda: {"gpu": 1, "cpu": "no CPU"})
    with pytest.raises(PlacerError, match="not available: zeus reads 1 GPU here, and cuda:1 is none of them"):
        zeus.measure(list, device="cuda:1")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"steps": 0}, ValueError, "steps must be a whole number, 1 or more, not 0"),
        ({"steps": 1.5}, TypeError, "steps must be a whole number"),
        ({"seconds": 0.0}, ValueError, "seconds must be a number above 0"),
        ({"seconds": "5"}, TypeError, "seconds must be a number above 0, not '5'"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        zeus.measure(list, device="cpu", **arguments)


#: Counters of RAPL as the kernel shows them, of a package and its memory, which each step advances by 2.5 J and 0.5 J.
SCRIPT = """
import json, sys
from pathlib import Path

def main():
    package, memory = Path(sys.argv[1]) / "intel-rapl:0", Path(sys.argv[1]) / "intel-rapl:0" / "intel-rapl:0:0"
    memory.mkdir(parents=True)
    for folder, name in ((package, "package-0"), (memory, "dram")):
        (folder / "name").write_text(name)
        (folder / "energy_uj").write_text("1000000")
        (folder / "max_energy_range_uj").write_text("262143328850")

    from zeus.device.cpu import rapl
    rapl.RAPL_DIR = sys.argv[1]
    from placer.integrations import zeus

    advancing = True
    def step():
        for folder, joules in ((package, 2.5), (memory, 0.5)) if advancing else ():
            counter = folder / "energy_uj"
            after = int(counter.read_text()) + int(joules * 1e6)
            (folder / "next").write_text(str(after))
            (folder / "next").replace(counter)

    found = {"available": zeus.available()}
    energy = zeus.measure(step, device="cpu", steps=40)
    found |= {"domains": dict(energy.domains), "joules": energy.joules_per_step, "watts": energy.watts,
              "seconds": energy.seconds_per_step, "steps": energy.steps}
    found["timed"] = zeus.measure(step, device="cpu", seconds=0.5).steps
    advancing = False
    for device in ("cpu", "cuda"):
        try:
            zeus.measure(step, device=device, steps=3)
        except Exception as error:
            found[device] = f"{type(error).__name__}: {error}"
    print("FOUND" + json.dumps(found))

if __name__ == "__main__":
    main()
"""


@INSTALLED
@BARE
def test_what_the_counters_advanced_is_what_a_step_took(tmp_path: Path) -> None:
    script = tmp_path / "measured.py"
    script.write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "intel-rapl")], capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    line = next((line for line in done.stdout.splitlines() if line.startswith("FOUND")), None)
    assert line is not None, done.stderr[-4000:]
    found = json.loads(line.removeprefix("FOUND"))
    assert found["available"] == ""
    assert found["domains"] == pytest.approx({"cpu 0": 2.5, "dram 0": 0.5})
    assert found["joules"] == pytest.approx(3.0)
    assert found["watts"] == pytest.approx(3.0 / found["seconds"])
    assert found["steps"] == 40
    assert found["timed"] >= 2
    assert found["cpu"].startswith("PlacerError: not available: no counter advanced in ")
    assert found["cuda"].startswith("PlacerError: not available: no GPU whose energy can be read (")


@INSTALLED
@pytest.mark.gpu
def test_a_gpu_is_measured() -> None:
    model = torch.nn.Linear(4096, 4096, device="cuda")
    batch = torch.randn(4096, 4096, device="cuda")
    energy = zeus.measure(lambda: model(batch), device="cuda", seconds=2.0)
    assert energy.domains["gpu 0"] > 0.0
    assert 20.0 < energy.watts < 2000.0

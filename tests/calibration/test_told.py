"""What a person reads during a calibration, after it, and later where its machine was restless."""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import pytest
import torch

import placer
from placer import profile
from placer.calibration.build import TENTHS, noise_warnings
from placer.calibration.progress import Progress
from placer.calibration.summary import render
from placer.pricing.timeline import LONG_STEPS
from placer.profile.profile import Profile


def drive(progress: Progress) -> None:
    with progress.showing():
        progress.begin(60.0)
        progress.start("measuring cpu, 2 threads", 20.0)
        progress.update(5.0, "matmul")
        progress.note("cuda: \x1b[2J\nfake")
        progress.start("measuring cuda", 28.0, done=12.4)
        progress.finish("fitting the cost model", 12.0)


def test_lines_go_to_stderr_and_a_note_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    drive(Progress.on_terminal())
    assert capsys.readouterr() == (
        "",
        (
            "placer: measuring cpu, 2 threads: 20 s\nplacer: cuda: \ufffd[2J\ufffdfake\n"
            "placer: measuring cuda: 28 s, 12 s of them done before\nplacer: fitting the cost model: 12 s\n"
        ),
    )
    drive(Progress())
    assert capsys.readouterr() == ("", "")


def test_a_bar_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    drive(Progress.on_terminal())
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "cuda: \ufffd[2J\ufffdfake" in shown.err
    assert "fitting the cost model" in shown.err


PINNED = {"copy/h2d/pinned/bytes_per_second": 2.5e10, "copy/d2h/pinned/bytes_per_second": 2.4e10}
PEAKS = {"flops/bfloat16": 9e13, "flops/float16": 8e13, "flops/float64": 1.5e13}
COSTS = {"step": 2e-6, "training_step": 9e-5, "forward_op": 1e-6, "updated_tensor": 0.0}
SHORT = """\
calibrated in 10 s

cpu, 1 thread
  arithmetic     float32 50.0 GFLOP/s
  memory         10.0 GB/s, read and written
  smallest op    2.00 µs
  certainty      9 of 10 steps take within 9% of what is predicted

cuda, Some GPU
  arithmetic     float32 20.0, bfloat16 90.0, float16 80.0, float64 15.0 TFLOP/s
  memory         1.00 TB/s, read and written
  launch         5.00 µs to issue, starts 5.00 µs later, 10.0 µs to wait for it
  copies         5.00 GB/s to device (25.0 GB/s from pinned memory),
                 5.00 GB/s to host (24.0 GB/s from pinned memory)
  certainty      9 of 10 steps take within a factor of 2.7 of what is predicted

for every number: placer profile show --all"""


@pytest.fixture
def two_devices(handmade_profile: Profile) -> Profile:
    """Two numbers of threads, and an accelerator with a name and pinned memory."""
    cpu, cuda = handmade_profile.fits
    one, two = (replace(cpu, threads=n, framework=COSTS) for n in (1, 2))
    cuda = replace(cuda, rates={**cuda.rates, **PINNED, **PEAKS}, framework={}, interval={"base": 0.5, "held_out": 1.0})
    facts = {
        **handmade_profile.fingerprint, "threads": 1, "accelerators": [{"device": "cuda", "name": "Some GPU"}],
    }  # fmt: skip
    return replace(handmade_profile, fits=(one, two, cuda), fingerprint=facts)


def test_the_data_sheet_is_short(two_devices: Profile) -> None:
    assert render(two_devices) == SHORT


@pytest.mark.parametrize("everything", [False, True])
def test_a_line_fits_a_terminal(two_devices: Profile, everything: bool) -> None:
    costs = {f"thing_number_{n}": n * 1e-6 for n in range(1, 9)}
    found = replace(
        two_devices, fits=tuple(replace(fit, framework=costs) for fit in two_devices.fits), warnings=("much " * 40,)
    )
    text = render(found, everything=everything)
    assert max(map(len, text.splitlines())) <= 80
    for n in range(1, 9):
        assert (f"{n}.00 µs per thing number {n}" in text) == everything


def test_a_gpu_of_the_catalog_is_not_called_calibrated(two_devices: Profile) -> None:
    known = replace(two_devices, fits=(replace(two_devices.fit("cuda"), gpu="Tesla T4"),))
    text = render(known)
    assert text.startswith("not calibrated: what the catalog knows of Tesla T4\n")
    assert "certainty" not in text


def test_a_machine_whose_speed_varies_is_told_in_one_line_that_explain_shows(handmade_profile: Profile) -> None:
    cpu = handmade_profile.fit("cpu")
    assert noise_warnings([cpu]) == ()
    restless = replace(cpu, interval={**cpu.interval, "moment": math.log(1.6) / TENTHS})
    (warning,) = noise_warnings([cpu, restless])
    assert warning == "this machine is shared: its speed varies by 1.6x, and intervals are as wide"
    beside = replace(restless, rates={**cpu.rates, LONG_STEPS: 2.1})
    assert noise_warnings([beside]) == (f"{warning}; beside other programs steps of 2 ms and more take 2.1x",)
    profile.save(replace(handmade_profile, warnings=(warning,)))
    shown = placer.explain(torch.nn.Linear(2, 2), (1, 2), devices=["cpu"]).to_text(width=1000, full=True)
    assert f"- {warning}" in shown.splitlines()

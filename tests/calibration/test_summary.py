"""What a person reads after a calibration."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placer.calibration.summary import render
from placer.profile.profile import Profile

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
def profile(handmade_profile: Profile) -> Profile:
    """Two numbers of threads, and an accelerator with a name and pinned memory."""
    cpu, cuda = handmade_profile.fits
    one, two = (replace(cpu, threads=n, framework=COSTS) for n in (1, 2))
    cuda = replace(cuda, rates={**cuda.rates, **PINNED, **PEAKS}, framework={}, interval={"base": 0.5, "held_out": 1.0})
    facts = {
        **handmade_profile.fingerprint, "threads": 1, "accelerators": [{"device": "cuda", "name": "Some GPU"}],
    }  # fmt: skip
    return replace(handmade_profile, fits=(one, two, cuda), fingerprint=facts)


def test_the_data_sheet_is_short(profile: Profile) -> None:
    assert render(profile) == SHORT


@pytest.mark.parametrize("everything", [False, True])
def test_a_line_fits_a_terminal(profile: Profile, everything: bool) -> None:
    costs = {f"thing_number_{n}": n * 1e-6 for n in range(1, 9)}
    found = replace(
        profile, fits=tuple(replace(fit, framework=costs) for fit in profile.fits), warnings=("much " * 40,)
    )
    text = render(found, everything=everything)
    assert max(map(len, text.splitlines())) <= 80
    for n in range(1, 9):
        assert (f"{n}.00 µs per thing number {n}" in text) == everything


def test_a_gpu_of_the_catalog_is_not_called_calibrated(profile: Profile) -> None:
    known = replace(profile, fits=(replace(profile.fit("cuda"), gpu="Tesla T4"),))
    text = render(known)
    assert text.startswith("not calibrated: what the catalog knows of Tesla T4\n")
    assert "certainty" not in text

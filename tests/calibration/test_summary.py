"""What a person reads after a calibration."""

from __future__ import annotations

from dataclasses import replace

from placer.calibration.summary import render
from placer.profile.profile import Profile


def test_every_device_with_its_data_sheet(handmade_profile: Profile) -> None:
    text = render(handmade_profile)
    lines = text.splitlines()
    assert lines[0] == "calibrated in 10 s, 0 samples kept"
    assert any(line.startswith("cpu, ") for line in lines)
    assert "cuda" in lines
    for part in ("float32 50.0 GFLOP/s", "float32 20.0 TFLOP/s", "10.0 GB/s", "1.00 TB/s", "5.00 GB/s pageable"):
        assert part in text, part
    assert "until it starts" in text
    assert text.count("copy to device") == 1
    assert "pinned" not in text  # never measured, so not claimed


def test_warnings_noise_and_what_is_missing(handmade_profile: Profile) -> None:
    profile = replace(
        handmade_profile,
        noise={"median_spread": 0.034, "p90_spread": 0.21, "left_out": 0.125},
        warnings=("noisy: close your browser",),
        complete=False,
    )
    lines = render(profile).splitlines()
    assert "noise: repeated steps spread by 3.4% (median), 21.0% (90th percentile)" in lines
    assert "       12.5% of the steps are left out: something else on the machine changed its pace" in lines
    assert "warning: noisy: close your browser" in lines
    assert lines[-1] == "not complete: run placer calibrate again to go on where it stopped"


def test_no_host_times_among_the_framework(handmade_profile: Profile) -> None:
    cpu, cuda = handmade_profile.fits
    cpu = replace(cpu, framework={"module_call": 3e-6, "step": 0.0, "host/matmul": 5e-6})
    text = render(replace(handmade_profile, fits=(cpu, cuda)))
    assert "3.00 µs per module call" in text
    assert "per step" not in text
    assert "host/matmul" not in text


def test_a_line_fits_a_terminal_and_breaks_between_facts(handmade_profile: Profile) -> None:
    costs = {f"thing_number_{n}": n * 1e-6 for n in range(1, 9)}
    text = render(replace(handmade_profile, fits=tuple(replace(fit, framework=costs) for fit in handmade_profile.fits)))
    assert max(map(len, text.splitlines())) <= 80
    for n in range(1, 9):
        assert f"{n}.00 µs per thing number {n}" in text

"""The fit of the made-up device: what other machines are taught."""

from __future__ import annotations

import pytest

from placer.calibration.fitting.device import fit_device
from placer.profile.profile import DeviceFit

from .made_up import RATES, steps


@pytest.fixture(scope="package")
def reference() -> DeviceFit:
    return fit_device(steps(160, 0), RATES, device="cpu", threads=2)

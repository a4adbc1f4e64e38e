"""A device that no longer works is told from a probe that cannot run on it."""

from __future__ import annotations

import pytest
import torch

from placer.calibration.measuring import faults as health
from placer.calibration.measuring.faults import BrokenDeviceError, cause, check
from placer.errors import CalibrationError


def test_a_device_that_works_passes() -> None:
    check("cpu")


@pytest.mark.parametrize("error", [RuntimeError("device-side assert\nmore"), TypeError("no"), MemoryError("none left")])
def test_a_device_that_fails_is_broken_for_a_reason(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(device: str) -> None:
        raise error

    monkeypatch.setattr(health, "synchronize", failing)
    with pytest.raises(BrokenDeviceError, match=f"^{type(error).__name__}: {str(error).splitlines()[0]}$"):
        check("cpu")


def test_what_torch_raises_for_a_device_is_known() -> None:
    names = ("OutOfMemoryError", "AcceleratorError")  # the latter since 2.8
    kinds = [getattr(torch, name) for name in names if hasattr(torch, name)]
    assert all(issubclass(kind, health.DEVICE_ERRORS) for kind in (*kinds, torch.cuda.DeferredCudaCallError))


def test_a_cause_is_one_short_printable_line() -> None:
    assert cause(RuntimeError("a\x1b[31m\tb" + "x" * 500)).startswith("RuntimeError: a [31m b")
    assert len(cause(RuntimeError("x" * 500))) == 200
    assert cause(ValueError()) == "ValueError: no message"
    assert cause(CalibrationError("it did not come back")) == "it did not come back"

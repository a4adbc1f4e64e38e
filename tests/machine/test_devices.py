"""Accelerators: which there are, and how they are spelled."""

from __future__ import annotations

import pytest
import torch

from placer import machine


def test_available_devices_start_with_the_cpu() -> None:
    assert machine.available_devices() == ("cpu", *machine.accelerators())


def test_no_accelerator_however_torch_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> torch.device:  # torch 2.6
        raise RuntimeError("Cannot access accelerator device when none is available.")

    for answer in (refuse, lambda: None):
        monkeypatch.setattr(torch.accelerator, "current_accelerator", answer)
        assert machine.available_devices() == ("cpu",)


@pytest.mark.parametrize("bad", ["", "CPU", "cuda:", "cuda:-1", "cuda:1:2", "cpu ", "../cpu", "cuda:9999"])
def test_what_is_not_a_device(bad: str) -> None:
    with pytest.raises(ValueError, match="not a device"):
        machine.split_device(bad)


def test_device_spelling() -> None:
    assert machine.split_device("cuda:1") == ("cuda", 1)
    assert machine.normal_device("cuda:0") == "cuda"
    assert machine.normal_device("cuda:2") == "cuda:2"

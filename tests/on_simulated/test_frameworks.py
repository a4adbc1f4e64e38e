"""What the integrations answer beside the simulated accelerator, and nets and policies that really train there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from on_simulated.two_devices import large
from simulated.device import SimulatedDevice

from placer import profile

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(autouse=True)
def _known(with_cpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's own profile knows the accelerator, which is fast for what is wide."""
    monkeypatch.setenv("PLACER_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    profile.save(with_cpu)


def fitted(skorch: Any, **options: Any) -> tuple[Any, Any]:
    from placer.integrations.skorch import ChooseOnFit

    x, y = torch.randn(1024, 256).numpy(), torch.randn(1024, 10).numpy()
    net = skorch.NeuralNetRegressor(
        large,
        max_epochs=1,
        batch_size=1024,
        train_split=None,
        verbose=0,
        callbacks=[("placer", ChooseOnFit())],
        **options,
    )
    net.fit(x, y)
    assert np.isfinite(net.predict(x[:4])).all()
    return net, dict(net.callbacks_)["placer"].placement_


def test_a_net_of_skorch_is_moved_unless_its_device_was_chosen(device: SimulatedDevice) -> None:
    skorch = pytest.importorskip("skorch", reason="skorch is not installed")
    net, placement = fitted(skorch)
    assert (placement.decision.device, net.device) == ("sim", "sim:0")
    assert next(net.module_.parameters()).device.type == "sim"
    kept, placement = fitted(skorch, device=torch.device("cpu"))
    assert (placement, kept.device) == (None, torch.device("cpu"))
    assert next(kept.module_.parameters()).device.type == "cpu"
    there, placement = fitted(skorch, device="sim")
    assert (placement, there.device) == (None, "sim")

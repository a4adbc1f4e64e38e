"""How a child process gets the device: torch loads what stands under the entry point ``torch.backends``."""

from __future__ import annotations

import os
from pathlib import Path

#: Set in the environment of processes that have the device.
FLAG = "PLACER_TESTS_SIMULATED"


def environment(folder: Path) -> dict[str, str]:
    """This process's environment, plus what makes torch load the device; ``folder`` receives the entry point."""
    metadata = folder / "simulated_accelerator-0.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: simulated-accelerator\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text("[torch.backends]\nsim = simulated.backend:register\n")
    paths = [str(folder), str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), FLAG: "1"}

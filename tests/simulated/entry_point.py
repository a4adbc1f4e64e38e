"""How a child process gets the device: torch loads what stands under the entry point ``torch.backends``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulated.spec import SPEC, Spec

#: Set in the environment of processes that have the device: to "1", or to the options of each device as JSON.
FLAG = "PLACER_TESTS_SIMULATED"


def specs() -> list[Spec]:
    """The devices that the environment asks for."""
    options = os.environ.get(FLAG, "1")
    return [SPEC] if options == "1" else [Spec(**device) for device in json.loads(options)]


def environment(folder: Path, *devices: Mapping[str, Any]) -> dict[str, str]:
    """This process's environment, plus what makes torch load the device; ``folder`` receives the entry point.

    ``devices``: the options of each device; without any there is the usual one.
    """
    metadata = folder / "simulated_accelerator-0.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: simulated-accelerator\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text("[torch.backends]\nsim = simulated.backend:register\n")
    paths = [str(folder), str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    flag = json.dumps(devices) if devices else "1"
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), FLAG: flag}


def passed_beside(tests: str, folder: Path, ini: Path, **variables: str) -> str:
    """What pytest says of ``tests``, a path in this suite's folder, in a process that has the device.

    They all pass. ``folder`` receives the entry point; ``ini`` is pytest's configuration.
    """
    suite = Path(__file__).parents[1]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        str(ini),
        "--rootdir",
        str(suite.parent),
        "-q",
        "-p",
        "no:cacheprovider",
        str(suite / tests),
    ]
    done = subprocess.run(
        command, env={**environment(folder), **variables}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout

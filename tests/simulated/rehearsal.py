"""Rehearses ``make gpu`` on the simulated accelerator, then replays the record that it leaves: ``make gpu-rehearsal``.

The device costs what no device costs, and there is time for a few networks only: what is rehearsed is that every part
runs, in order and in time, and that its results can be read.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from simulated.entry_point import environment

SCRIPT = Path(__file__).parents[2] / "calibration" / "records" / "measure_gpu.py"
#: Enough for every part on a slow machine: starting a process takes some seconds of each.
SECONDS = 260.0
#: Small networks: of the reference, of the quick suite, and one in bfloat16.
NETWORKS = ("actor_critic", "mlp_tabular_bfloat16", "mlp_tabular_large_batch")
#: A device whose kernels the recorder shows, and loses, with an allocator's cache and all dtypes.
DEVICE = {
    "name": "Simulated accelerator", "profiled": True, "loses_kernels": True, "cache": True, "flops_tf32": 8e11,
    "flops_bfloat16": 1.6e12, "flops_float16": 1.6e12,
}  # fmt: skip


def main() -> int:
    """Returns the exit code of the run, or of the replay where the run ended in order."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    options = parser.parse_args()
    folder = options.folder.absolute()
    process = {
        **environment(folder / "entry_point", DEVICE),
        "PLACER_HOME": str(folder / "home"),
        "OMP_NUM_THREADS": "1",
    }
    begun = time.perf_counter()
    command = [sys.executable, str(SCRIPT), "--folder", str(folder / "records")]
    for name in NETWORKS:
        command += ["--only", name]
    code = subprocess.run([*command, "--seconds", str(options.seconds)], env=process, check=False).returncode
    print(f"the run took {time.perf_counter() - begun:.0f} s", file=sys.stderr)
    for record in sorted((folder / "records").glob("*/measurements.json")):
        replay = [sys.executable, "-m", "placer", "validate", "--against", str(record.parent)]
        code = code or subprocess.run(replay, env=process, check=False).returncode
    return code


if __name__ == "__main__":
    sys.exit(main())

"""The command for whoever prices a new op: it names the row, times the op, and shows the price beside it."""

from __future__ import annotations

import subprocess
import sys

#: A call of an op that the table does not have.
GAMMA_GRADIENT = "torch._standard_gamma_grad(x.abs() + 1.0, x.abs() + 1.0) of 64x64"


#: What is no op, and what is said of it.
WRONG = {"nn.functional.gelo": "nn.functional.gelu", "torch.sinh(x)": "of 512x512", "torch.sinh(v) of 8x8": "x and y"}


def test_ops_are_timed_beside_their_prices_and_one_without_a_row_is_told_to_get_one() -> None:
    done = run("-m", "placer.calibration.validation.try_ops", "torch.sinh(x) of 512x512", GAMMA_GRADIENT)
    assert done.returncode == 0, done.stderr
    with_row, without = done.stdout.split(GAMMA_GRADIENT)
    assert "aten::sinh: row 'sinh'" in with_row
    assert "calls on one thread tell cycles" in with_row
    assert "measured" in with_row
    assert "predicted" in with_row
    assert "no row" in without


def test_what_is_no_op_says_what_is_one() -> None:
    imported = "from placer.calibration.validation.try_ops import main"
    done = run("-c", f"{imported}\nprint([main([op]) for op in {list(WRONG)}])")
    assert done.stdout.splitlines()[-1] == "[2, 2, 2]"
    lines = done.stderr.strip().splitlines()
    assert len(lines) == len(WRONG)
    for line, said in zip(lines, WRONG.values(), strict=True):
        assert said in line


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own: torch's database of ops changes switches of the process."""
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)

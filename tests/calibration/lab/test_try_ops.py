"""The command for whoever prices a new op: it names the row, times the op, and shows the price beside it."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from placer.calibration.lab.validators.ops import Samples, fit_cycles
from placer.pricing.ops import OPS_FILE
from placer.pricing.physics import STARTING

#: A call of an op that the table does not have.
GAMMA_GRADIENT = "torch._standard_gamma_grad(x.abs() + 1.0, x.abs() + 1.0) of 64x64"


#: What is no op, and what is said of it.
WRONG = {
    "torch.sinh(x)": "of 512x512",
    "torch.sinh(x) of 512xa": "'torch.sinh(x) of 512xa' is no call with shapes",
    "torch.sinh(v) of 8x8": "x and y",
    "torch.foo(x) of 8x8": "module 'torch' has no attribute 'foo'",
}


#: The command with a row of which one formula names what no call has.
MISFIT = """
import sys
from pathlib import Path
from placer.calibration.lab.validators.ops import main
from placer.pricing import ops
ops.OPS_FILE = Path({table!r})
sys.exit(main(["try", "torch.sinh(x) of 512x512"]))
"""


#: The command with what is no op, then with ops, in a process.
RUN = """
import sys
from placer.calibration.lab.validators.ops import main
assert {{main(["try", op]) for op in {wrong}}} == {{2}}
print({without!r})
sys.exit(main(["try", {with_row!r}, {without!r}]))
"""


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_ops_are_timed_beside_their_prices_and_what_is_no_op_says_what_is_one() -> None:
    script = RUN.format(wrong=list(WRONG), with_row="torch.sinh(x) of 512x512", without=GAMMA_GRADIENT)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    _, with_row, without = done.stdout.split(GAMMA_GRADIENT)
    assert "aten::sinh: row 'sinh'" in with_row
    assert "calls on one thread tell cycles" in with_row
    assert "measured" in with_row
    assert "predicted" in with_row
    assert "no row" in without
    lines = done.stderr.strip().splitlines()
    assert len(lines) == len(WRONG)
    for line, said in zip(lines, WRONG.values(), strict=True):
        assert said in line


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_row_with_a_formula_that_does_not_fit_is_no_op_without_one(tmp_path: Path) -> None:
    head, *rows = csv.reader(OPS_FILE.read_text(encoding="utf-8").splitlines())
    next(row for row in rows if row[0] == "sinh")[head.index("kernels")] = "no_such_amount"
    with (tmp_path / "ops.csv").open("w", encoding="utf-8", newline="") as lines:
        csv.writer(lines).writerows([head, *rows])
    script = MISFIT.format(table=str(tmp_path / "ops.csv"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, "the formula 'no_such_amount' does not fit its op" in done.stderr) == (2, True), done


def samples(each: float, begun: float, *, shared: bool) -> Samples:
    """Eight calls, half of them on two cores, which help where the op is shared."""
    units, none = np.geomspace(1e4, 1e7, 8), np.zeros(8)
    starts = units / 100.0 if begun else none
    cores, start = np.tile([1.0, 2.0], 4) if shared else np.ones(8), np.full(8, 1e-6)
    seconds = start + (each * units + begun * starts) * start / STARTING / cores
    return Samples(units, starts, cores, none, start, seconds)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("each", "begun"), [(40.0, 0.0), (3.0, 5000.0)])
def test_cycles_are_found_again(each: float, begun: float, shared: bool) -> None:
    given = samples(each, begun, shared=shared)
    found = fit_cycles(given)
    assert found is not None
    priced = found[0] * given.units + found[1] * given.starts
    assert priced == pytest.approx(each * given.units + begun * given.starts, rel=0.1)

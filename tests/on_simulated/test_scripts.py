"""Random scripts are the same after ``choose`` and ``explain``, and run on the device that was chosen for them.

``PLACER_SCRIPTS=0:2000`` tries those of the seeds 0 to 1,999.
"""

from __future__ import annotations

import os
import traceback
import warnings

import pytest
from on_simulated.two_devices import faster_on
from pictures import changed, same
from random_scripts import Script, moved, random_script
from simulated.device import SimulatedDevice

import placer

FIRST, END = (int(part) for part in os.environ.get("PLACER_SCRIPTS", "0:6").split(":"))


def runs_by_hand(seed: int) -> bool:
    """Whether a script runs on the simulated device where its user moves everything."""
    script = random_script(seed)
    try:
        for module in script.modules:
            module.to("sim")
        if script.optimizer.state:
            script.optimizer.load_state_dict(script.optimizer.state_dict())  # moves the state to the parameters
        script.step(moved(script.batch, "sim"), moved(script.target, "sim"))
    except Exception:  # noqa: BLE001 - what a script raises there is its own
        return False
    return True


def raised_where_it_was_put(script: Script, fast: str, by_hand: bool) -> str:
    """What a real step raises once placer has placed a script; "" where it runs.

    ``by_hand``: whether it runs on the accelerator at all.
    """
    args, given = script.question()
    placement = placer.choose(*args, **given, profile=faster_on(fast))
    if not by_hand and placement.device.type == "sim":
        return ""
    try:
        script.step(placement.to(script.batch), placement.to(script.target))
    except Exception:  # noqa: BLE001 - told by the test
        return f"on {placement.device}, the faster one is {fast}: {traceback.format_exc(limit=-3)}"
    return ""


def runs(seed: int) -> bool:
    """Whether a script runs at all."""
    try:
        random_script(seed).results()
    except Exception:  # noqa: BLE001
        return False
    return True


def faults(seed: int) -> list[str]:
    """What is wrong after all questions about the script of a seed."""
    expected = random_script(seed).results()
    script = random_script(seed)
    args, given = script.question()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        before = script.state()
        with script.surroundings():
            placer.choose(*args, **given, devices=["cpu"], profile=faster_on("cpu"))
            placer.explain(*args, **given, profile=faster_on("cpu"), what_if="RTX 4090")
        after = script.state()
    found = [f"warned: {w.message}" for w in warned if issubclass(w.category, placer.PlacerWarning)]
    found += [f"changed: {key}" for key in changed(before, after)]
    if not same(script.results(), expected):
        found.append("the next steps give other numbers")
    by_hand, script = runs_by_hand(seed), random_script(seed)
    for fast in ("sim", "cpu"):
        found += filter(None, [raised_where_it_was_put(script, fast, by_hand)])
    return found


@pytest.mark.filterwarnings("ignore")  # the scripts' own
@pytest.mark.parametrize("seed", range(FIRST, END))
def test_a_random_script_is_as_it_was_and_runs_where_it_is_put(seed: int, device: SimulatedDevice) -> None:
    if not runs(seed):
        pytest.skip("the script does not run")
    assert faults(seed) == [], random_script(seed).drawn

"""What is loaded, and when: in one new process that does more and more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from placer import machine, profile

#: Packages, or modules, that are not loaded up to and including a step of ``loaded.py``.
ABSENT = {
    "import": {"torch", "numpy", "scipy", "sklearn", "rich", "transformers", "click", "joblib", "platformdirs"},
    "explanation": {"rich", "jinja2", "vl_convert"},
    "names": {
        "sklearn", "rich", "transformers", "scipy", "click", "jinja2", "vl_convert", "ray", "sky",
    },
    "choose": {"sklearn", "scipy", "joblib", "rich", "transformers", "jinja2", "click", "placer.calibration"},
    "trace": {"torch._dynamo", "sympy"},
    "suite": {"transformers", "torch_geometric", "pytorch_tabnet", "torchdiffeq"},
    "estimate": {"sklearn", "scipy", "joblib", "rich", "click"},
}  # fmt: skip


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Modules that were new after each step; the profile has the fits of a real one, as if measured here."""
    real, facts = profile.load(profile.shipped()[0]), machine.fingerprint()
    here = replace(real, fingerprint=facts, fits=(replace(real.fit("cpu"), threads=facts["threads"]),))
    folder = tmp_path_factory.mktemp("loaded")
    path = profile.save(here, folder / "profile.json")
    command = [sys.executable, "-W", "ignore", str(Path(__file__).parent / "loaded.py"), str(path)]
    environment = {**os.environ, "PLACER_HOME": str(folder / "home")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout.partition("LOADED")[2])
    return found


@pytest.mark.parametrize("step", ABSENT)
def test_what_a_step_does_not_need_is_not_loaded(step: str, loaded: dict[str, list[str]]) -> None:
    steps = list(loaded)
    so_far = {name for done in steps[: steps.index(step) + 1] for name in loaded[done]}
    assert not ABSENT[step] & so_far


def test_torch_is_loaded_with_the_first_name_that_needs_it(loaded: dict[str, list[str]]) -> None:
    assert "torch" in {*loaded["explanation"], *loaded["names"]}

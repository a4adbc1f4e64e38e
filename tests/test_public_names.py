"""The public names are a promise, and importing them is cheap."""

from __future__ import annotations

import subprocess
import sys

import pytest

import placer


def test_public_names_are_locked() -> None:
    assert sorted(placer.__all__) == [
        "CalibrationError", "Decision", "Explanation", "Fleet", "Job", "JobPlacement", "Loading", "Machine", "Part",
        "Placement", "PlacerError", "PlacerWarning", "Prediction", "Profile", "ProfileDamaged", "ProfileError",
        "ProfileMissing", "ProfileStale", "ProfileTooNew", "ProfileTooOld", "TargetError", "TimerError", "TraceError",
        "UnknownGPU", "Workload", "__version__", "calibrate", "choose", "explain", "fleet", "load_profile",
    ]  # fmt: skip


@pytest.mark.parametrize("name", placer.__all__)
def test_every_public_name_loads(name: str) -> None:
    assert getattr(placer, name) is not None
    assert name in dir(placer)


def test_every_error_is_public() -> None:
    from placer import errors

    defined = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert defined <= set(placer.__all__)


def test_other_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        _ = placer.colour  # type: ignore[attr-defined]


def imported_by(code: str) -> set[str]:
    """Top-level modules loaded after running ``code`` in a fresh interpreter."""
    code += "\nimport sys; print('MODULES', *sorted({m.split('.')[0] for m in sys.modules}))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert result.returncode == 0, result.stderr
    return set(result.stdout.split("MODULES")[1].split())


def test_import_placer_is_light() -> None:
    loaded = imported_by("import placer")
    assert not loaded & {"torch", "numpy", "sklearn", "rich", "transformers", "click", "joblib", "platformdirs"}


def test_the_library_needs_no_heavy_package() -> None:
    loaded = imported_by("import placer\nfor name in placer.__all__: getattr(placer, name)")
    assert "torch" in loaded
    assert not loaded & {
        "sklearn", "rich", "transformers", "scipy", "click", "jinja2", "vl_convert", "ray", "distributed", "sky", "zeus"
    }  # fmt: skip


def test_help_needs_no_torch() -> None:
    loaded = imported_by(
        "import runpy, sys\n"
        "sys.argv = ['placer', '--help']\n"
        "try: runpy.run_module('placer', run_name='__main__')\n"
        "except SystemExit as stop: assert not stop.code, stop.code"
    )
    assert "click" in loaded
    assert not loaded & {"torch", "numpy", "sklearn", "transformers"}

"""The list of packages in pyproject.toml is that of the folders on disk, but for what measures placer itself."""

from __future__ import annotations

import re
import sys
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def packages_on_disk() -> set[str]:
    found: set[str] = set()
    for folder, package in (("placer", "placer"), ("calibration", "placer.calibration")):
        for path in (ROOT / folder).rglob("*.py"):
            if path.parent.name == "records":
                continue  # a script beside the records is in no package
            inner = path.parent.relative_to(ROOT / folder).parts
            found.add(".".join((package, *inner)))
    return found


def test_no_package_is_forgotten() -> None:
    listed = re.search(r"^packages = \[(.*?)^\]", PYPROJECT, re.DOTALL | re.MULTILINE)
    assert listed is not None
    in_a_checkout_only = {name for name in packages_on_disk() if name.startswith("placer.calibration.lab")}
    assert len(in_a_checkout_only) > 1
    assert set(re.findall(r'"([^"]+)"', listed[1])) == packages_on_disk() - in_a_checkout_only


def test_every_package_folder_has_an_init() -> None:
    for package in packages_on_disk():
        folder = package.replace("placer.calibration", "calibration").replace(".", "/")
        assert (ROOT / folder / "__init__.py").is_file(), folder


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib came with Python 3.11")
def test_constraints_pin_every_direct_dependency_within_its_bounds() -> None:
    import tomllib
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    project = tomllib.loads(PYPROJECT)["project"]
    pins: dict[str, str] = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, _, version = line.partition("==")
            assert re.fullmatch(r"[0-9][0-9a-z.]*", version), f"not an exact pin: {line}"
            pins[canonicalize_name(name)] = version
    wanted = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    for requirement in map(Requirement, wanted):
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), requirement

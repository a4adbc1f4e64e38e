"""The shape of the house: imports run downwards, in no circle, and from front pages; the public names are a promise."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import placer
from placer import errors

ROOT = Path(__file__).resolve().parent.parent
#: Packages and single modules of ``placer``, from the top down. What stands in one line may not import each other.
ORDER = (
    ("cli",),
    ("run",),
    ("calibration",),
    ("integrations",),
    ("fleets",),
    ("api",),
    ("placed",),
    ("explanation",),
    ("decision",),
    ("placement",),
    ("pricing",),
    ("tracing",),
    ("profile", "workload"),
    ("machine",),
    ("files", "sections"),
    ("collector", "compiler", "errors", "lazy", "nest", "printable", "units"),
)
#: The same inside ``placer.calibration``.
CALIBRATION = (
    ("lab",),
    ("runner",),
    ("probing",),
    ("validation",),
    ("build", "summary"),
    ("fitting", "plan"),
    ("measuring",),
    ("benchmarks", "progress"),
    ("suite",),
)
FLOOR = {name: -number for number, names in enumerate(ORDER) for name in names}
#: The one way up: ``placer.calibrate`` is part of the public functions, and calibration stands above them.
UPWARD = {("placer.api", "placer.calibration")}
#: Lines of the longest module: it holds one whole idea.
LONGEST = 500


@cache
def modules() -> dict[str, Path]:
    """Every module of the library by its import name; a script beside the records is none."""
    found: dict[str, Path] = {}
    for folder, package in ((ROOT / "placer", "placer"), (ROOT / "calibration", "placer.calibration")):
        for path in sorted(folder.rglob("*.py")):
            if (ROOT / "calibration" / "records") in path.parents:
                continue
            parts = path.relative_to(folder).with_suffix("").parts
            name = ".".join((package, *(parts[:-1] if parts[-1] == "__init__" else parts)))
            assert name not in found, name
            found[name] = path
    return found


@cache
def imports(module: str) -> tuple[str, ...]:
    """Every module of the library that ``module`` imports, lazily, for its types, or by a name in a string."""
    tree = ast.parse(modules()[module].read_text(encoding="utf-8"))
    found = (name for node in ast.walk(tree) for name in _imported(node))
    return tuple(dict.fromkeys(name for name in found if name in modules() and name != module))


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "relative imports are not followed by this test"
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            yield inner if inner in modules() else str(node.module)
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
        yield from (a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str))


def part(module: str) -> str:
    """The package or single module of ``placer`` that a module belongs to; "" for ``placer`` itself and its command."""
    name = module.removeprefix("placer").lstrip(".").partition(".")[0]
    return "" if name == "__main__" else name


def crossings() -> Iterator[tuple[str, str]]:
    """Every import from one part of ``placer`` to another."""
    for module in modules():
        for other in imports(module):
            if part(module) and part(other) and part(module) != part(other):
                yield module, other


def test_every_part_has_a_place_in_the_order() -> None:
    assert {part(name) for name in modules()} - {""} == set(FLOOR)


def test_imports_run_downwards() -> None:
    up = {(module, other) for module, other in crossings() if FLOOR[part(other)] >= FLOOR[part(module)]}
    assert up == UPWARD


def test_imports_run_downwards_inside_calibration() -> None:
    floor = {name: -number for number, names in enumerate(CALIBRATION) for name in names}

    def room(module: str) -> str:
        return module.removeprefix("placer.calibration").lstrip(".").partition(".")[0]

    rooms = [name for name in modules() if part(name) == "calibration" and room(name)]
    assert {room(name) for name in rooms} == set(floor)
    up = {
        (module, other)
        for module in rooms
        for other in imports(module)
        if part(other) == "calibration"
        and room(other)
        and room(other) != room(module)
        and floor[room(other)] >= floor[room(module)]
    }
    assert not up


def test_no_import_runs_in_a_circle() -> None:
    # ``placer`` itself hands out the public names, which it loads on first use; a package's front page is its modules'.
    graph = {name: [other for other in imports(name) if other != "placer"] for name in modules() if name != "placer"}
    graph["placer.api"] = [other for other in graph["placer.api"] if ("placer.api", other) not in UPWARD]
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_other_packages_are_entered_by_the_front_door() -> None:
    """``from placer.pricing import CostModel``: what a package's own page does not name is the package's alone."""
    inside = {
        (module, other) for module, other in crossings() if other.count(".") > 1 and other not in exported(part(other))
    }
    assert not inside


@cache
def exported(package: str) -> frozenset[str]:
    """The submodules that a package's front page names, as ``placer.decision`` does ``history``.

    Those of the integrations are public, and none is imported before its framework is used.
    """
    if package == "integrations":
        return frozenset(name for name in modules() if part(name) == package)
    names = ast.literal_eval(
        next(
            ast.unparse(node.value)
            for node in ast.parse(modules()[f"placer.{package}"].read_text(encoding="utf-8")).body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        )
    )
    return frozenset(f"placer.{package}.{name}" for name in names)


def test_public_names_are_locked() -> None:
    assert sorted(placer.__all__) == [
        "CalibrationError",
        "Decision",
        "Explanation",
        "Fleet",
        "Job",
        "JobPlacement",
        "Loading",
        "Machine",
        "Options",
        "Part",
        "Placement",
        "PlacerError",
        "PlacerWarning",
        "Prediction",
        "Profile",
        "ProfileDamaged",
        "ProfileError",
        "ProfileMissing",
        "ProfileStale",
        "ProfileTooNew",
        "ProfileTooOld",
        "TargetError",
        "TimerError",
        "TraceError",
        "UnknownCPU",
        "UnknownGPU",
        "Workload",
        "__version__",
        "calibrate",
        "choose",
        "explain",
        "fleet",
        "load_profile",
    ]


def test_every_error_is_public() -> None:
    defined = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert defined <= set(placer.__all__)


def test_other_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        _ = placer.colour  # type: ignore[attr-defined]


def test_public_names_live_in_front_pages() -> None:
    assert all(home.count(".") <= 1 for home in placer._HOMES.values())


def test_no_module_is_longer_than_one_idea() -> None:
    lines = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in modules().items()}
    assert {name: count for name, count in lines.items() if count > LONGEST} == {}

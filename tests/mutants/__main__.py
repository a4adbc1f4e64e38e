"""Changes one place of a module at a time, and counts the changes that the module's own tests notice.

torch is imported once. Each mutant runs in a fork, where the changed source is imported in place of the file: no file
of the checkout is written. ``settings.toml`` names the sample, and the tests of modules whose tests are elsewhere.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from multiprocessing.pool import ThreadPool
from pathlib import Path
from types import CodeType
from typing import Any

import hypothesis
import pytest
import tomllib
import torch  # noqa: F401 - once, for all forks
from sampling import Mutant, sample

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
SETTINGS = tomllib.loads((TESTS / "mutants" / "settings.toml").read_text())
#: What a fork ends with where the changed module cannot even be imported: no test is needed to notice that.
BROKEN = 90
#: pytest's codes of a run that says nothing of a mutant: the tests were not found, or not collected.
ERRORS = (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED)


class Changed(MetaPathFinder, SourceFileLoader):
    """Imports a changed source in place of a file."""

    def __init__(self, mutant: Mutant) -> None:
        name = mutant.module.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        super().__init__(name, str(ROOT / mutant.module))
        self.source = mutant.source

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return spec_from_file_location(fullname, self.path, loader=self) if fullname == self.name else None

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.source, self.path, "exec", dont_inherit=True)


def tests_of(module: str) -> list[tuple[str, ...]]:
    """The tests of a module, by process: its mirror under tests/, and what the settings name; simulated ones apart."""
    path = Path(module).relative_to("placer")
    mirror = f"tests/{path.parent.as_posix()}/test_{path.name}"
    found = [mirror] * (ROOT / mirror).exists() + SETTINGS["tests"].get(path.as_posix(), [])
    simulated = tuple(name for name in found if name.startswith("tests/on_simulated"))
    return [each for each in (tuple(name for name in found if name not in simulated), simulated) if each]


def in_fork(tests: Sequence[str], mutant: Mutant | None, scratch: str) -> None:
    """Runs the tests, and ends the process with pytest's code; the output goes to a file named like the process."""
    own = f"{scratch}/{os.getpid()}"
    output = os.open(f"{own}.txt", os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1), os.dup2(output, 2)
    os.chdir(ROOT)
    if mutant is not None:
        sys.meta_path.insert(0, changed := Changed(mutant))
        try:
            importlib.import_module(changed.name)
        except Exception:  # noqa: BLE001 - whatever the change made of it
            os._exit(BROKEN)
    if tests[0].startswith("tests/on_simulated"):
        os.environ["PLACER_TESTS_SIMULATED"] = "1"
        importlib.import_module("simulated.backend").register()
    os._exit(pytest.main(["-x", "-q", "--tb=line", "-p", "pytest_timeout", "-p", "no:cacheprovider", "-c",
                          "pyproject.toml", "--rootdir", str(ROOT), "--basetemp", own, *tests]))  # fmt: skip


def ended(tests: Sequence[str], mutant: Mutant | None, scratch: str, limit: float) -> tuple[str, str]:
    """How the tests ended, and what they printed."""
    process = multiprocessing.get_context("fork").Process(target=in_fork, args=(tests, mutant, scratch))
    process.start()
    process.join(limit)
    if process.exitcode is None:
        process.kill()
        return "killed", "FAILED by the time limit"
    how = {0: "survived", BROKEN: "broken", **dict.fromkeys(ERRORS, "error")}.get(process.exitcode, "killed")
    return how, Path(f"{scratch}/{process.pid}.txt").read_text(errors="replace")


def tried(mutant: Mutant, limit: float, scratch: str) -> dict[str, Any]:
    """A mutant, how it ended and by which test."""
    how, printed = "equivalent" if mutant.reason else "survived", ""
    began = time.monotonic()
    for tests in tests_of(mutant.module):
        if how == "survived":
            how, printed = ended(tests, mutant, scratch, limit)
    print({"killed": ".", "survived": "S"}.get(how, how[0]), end="", file=sys.stderr, flush=True)
    told = {key: value for key, value in asdict(mutant).items() if key != "source"}
    by = re.findall(r"^(?:FAILED|ERROR) (.+)", printed, re.MULTILINE)
    return {**told, "how": how, "by": by[-1] if by else "", "seconds": round(time.monotonic() - began, 2)}


def report(results: Sequence[dict[str, Any]]) -> int:
    """Prints the survivors, and a line for each package; 1 where fewer die than the settings ask for."""
    for each in results:
        if each["how"] in ("survived", "error"):
            print(f"\n{each['module']}:{each['line']} {each['how']}\n  - {each['before']}\n  + {each['after']}")
    share = 0.0
    for package in (*SETTINGS["packages"], ""):
        how = Counter(each["how"] for each in results if each["module"].startswith(f"placer/{package}"))
        share = how["killed"] / max(how["killed"] + how["survived"], 1)
        print(f"{package or 'all':10} {how['killed']:4} killed, {how['survived']:3} survived: {share:6.1%}; besides, "
              f"{how['broken']} that break the import and {how['equivalent']} without effect")  # fmt: skip
    return int(share < SETTINGS["least"] or any(each["how"] == "error" for each in results))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=SETTINGS["count"], help="how many changes to try")
    parser.add_argument("--only", default="", help="a regular expression: of these modules alone")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    asked = parser.parse_args()
    mutants = [each for each in sample(ROOT, SETTINGS, asked.count) if re.search(asked.only, each.module)]
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    sys.path.insert(0, str(TESTS))
    hypothesis.settings.register_profile("mutants", database=None, derandomize=True, phases=["explicit", "generate"])
    hypothesis.settings.load_profile("mutants")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch, ThreadPool(asked.jobs) as pool:
        sets = sorted({tests for mutant in mutants for tests in tests_of(mutant.module)})
        unchanged = pool.imap(lambda tests: ended(tests, None, scratch, 600.0), sets)
        for tests, (how, printed) in zip(sets, unchanged, strict=True):
            if how != "survived":
                sys.exit(f"{' '.join(tests)}: {how} without any change\n{printed}")
        results = list(pool.imap(lambda mutant: tried(mutant, SETTINGS["seconds"], scratch), mutants))
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / "build" / "mutants.json").write_text(json.dumps(results, indent=1) + "\n")
    return report(results)


if __name__ == "__main__":
    sys.exit(main())

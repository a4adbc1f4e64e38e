"""Tries the oldest and the newest versions that pyproject.toml allows, each set in an environment of its own.

``make versions`` runs this. In each environment it runs the promises, the patterns and the API's tests, then a quick
calibration and an explanation. It writes the table of docs/dev/versions.md, and exits with 1 where anything failed.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from placer.machine import OLDEST_TORCH

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "dev" / "versions.md"
#: The checkout in the shape of the wheel (``make tree``): tests run on it, whatever is installed.
TREE = ROOT / "build" / "tree"
TESTS = ("tests/test_promises.py", "tests/test_patterns.py", "tests/test_api.py")
TEST_TOOLS = ("expecttest", "hypothesis", "pytest", "pytest-randomly", "pytest-timeout")
#: What the page tells of each environment.
SHOWN = ("torch", "numpy", "msgspec", "click", "scikit-learn")
NETWORK = ("calibration/suite/conv1d.py:Conv1dRegressor", "--batch", "32,84")
HEAD = "| versions | installed | tests | calibration and explanation | day |\n|---|---|---|---|---|\n"


@dataclass(frozen=True)
class Environment:
    """Versions to try: ``arguments`` are uv's, besides the requirements of pyproject.toml."""

    name: str
    arguments: tuple[str, ...]

    @property
    def folder(self) -> Path:
        return ROOT / "build" / "versions" / self.name.replace(" ", "-")

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")


ENVIRONMENTS = (
    Environment("oldest torch", (f"torch=={OLDEST_TORCH}",)),
    Environment("newest of all", ("--upgrade",)),
    Environment("lowest of all", ("--resolution", "lowest-direct")),
)


def make(environment: Environment) -> None:
    """Create the environment with placer's requirements and pytest. CalledProcessError where they cannot be had."""
    uv = [sys.executable, "-m", "uv", "--quiet"]
    subprocess.run([*uv, "venv", "--clear", "--python", sys.executable, environment.folder], check=True)
    install = [*uv, "pip", "install", "--python", environment.python]
    subprocess.run([*install, *environment.arguments, "--requirements", ROOT / "pyproject.toml"], check=True)
    subprocess.run([*install, *TEST_TOOLS], check=True)


def run(environment: Environment, module: str, *arguments: str) -> tuple[bool, str]:
    """Whether ``python -m module`` succeeded in the checkout, and what it printed."""
    variables = {
        **os.environ,
        "PYTHONPATH": str(TREE),
        "PYTHONSAFEPATH": "1",  # else the checkout's placer/ would be found before the tree's
        "OMP_WAIT_POLICY": "PASSIVE",
        "PLACER_HOME": str(environment.folder / "home"),
    }
    command = [environment.python, "-m", module, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    return done.returncode == 0, done.stdout + done.stderr


def installed(environment: Environment) -> str:
    """The versions that the page tells."""
    code = f"from importlib.metadata import version; print(*(f'{{n}} {{version(n)}}' for n in {SHOWN}), sep=', ')"
    done = subprocess.run([environment.python, "-c", code], capture_output=True, text=True, check=True)
    return f"Python {sys.version_info.major}.{sys.version_info.minor}, {done.stdout.strip()}"


def row(environment: Environment) -> tuple[bool, str]:
    """Whether everything passed in an environment, and its row of the table."""
    tested, output = run(environment, "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", *TESTS)
    counts = re.search(r"^\d+ (?:passed|failed|error).*(?= in )", output, re.MULTILINE)
    tests = counts[0] if counts else "could not be run"
    if not tested:
        print(output)
    answered = "passed"
    for command in (("calibrate", "--quick", "--quiet"), ("explain", *NETWORK)):
        succeeded, output = run(environment, "placer", *command)
        if not succeeded:
            print(output)
            answered = f"placer {command[0]} failed"
            break
    day = dt.datetime.now(dt.timezone.utc).date()
    cells = (environment.name, installed(environment), tests, answered, str(day))
    return tested and answered == "passed", f"| {' | '.join(cells)} |\n"


def main(names: Sequence[str]) -> int:
    """Try the environments of these names, all without any, and write their rows. Returns the exit code."""
    known = {environment.name: environment for environment in ENVIRONMENTS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"there is no environment {unknown[0]!r}; there are {', '.join(map(repr, known))}")
    failed = False
    for name in names or known:
        environment = known[name]
        make(environment)
        passed, line = row(environment)
        failed |= not passed
        print(line, end="", flush=True)
        write(name, line)
        shutil.rmtree(environment.folder)  # several GB
    return int(failed)


def write(name: str, line: str) -> None:
    """Put a row into the page, in place of the one of that name."""
    text, table = PAGE.read_text(encoding="utf-8").split(HEAD)
    rows = {row.split(" | ")[0].removeprefix("| "): row for row in table.splitlines(keepends=True)}
    rows[name] = line
    PAGE.write_text(text + HEAD + "".join(rows.values()), encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

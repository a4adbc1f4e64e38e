"""Every line of docs/dev/reliability.md names a test that is there, and shows the figure that was found."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
from test_docs import REGENERATE

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "dev" / "reliability.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| fault |"))
]
#: What a line without a test says in place of a figure.
OPEN = ("not measured",)


def functions_in(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_a_line_has_a_test_and_a_figure(row: list[str]) -> None:
    fault, what, test, run, figure = row
    assert fault
    assert figure
    if not test:
        assert figure in OPEN
        return
    assert what
    file, _, name = test.strip("`").partition("::")
    assert name in functions_in(file)
    assert (file.startswith("tests/soak/")) == run.startswith("soak `")
    assert run.startswith("soak `") or run == "`make test`"


def test_the_figures_of_the_soak_are_those_it_wrote() -> None:
    assert REGENERATE.with_figures(PAGE, REGENERATE.soaked()) == PAGE


def test_every_figure_that_was_written_is_shown() -> None:
    keys = set(re.findall(r"soak `([^`]+)`", PAGE))
    assert set(json.loads((ROOT / "docs" / "dev" / "reliability.json").read_text(encoding="utf-8"))) <= keys
    noted = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "soak").glob("test_*.py"))
    for key in keys:
        assert f'note("{key}"' in noted or f'note(f"{key.rpartition(" ")[0]} {{name}}"' in noted, key

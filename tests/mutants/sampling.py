"""Which changes are tried: a random sample of what cosmic-ray can change, the same every time."""

from __future__ import annotations

import ast
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

Position = tuple[int, int]


@dataclass(frozen=True)
class Mutant:
    """A module with one change. ``reason`` says why no test can notice it, where that is known."""

    module: str
    line: int
    operator: str
    before: str
    after: str
    source: str = field(repr=False)
    reason: str = ""


def sample(root: Path, settings: Mapping[str, Any], count: int) -> list[Mutant]:
    """``count`` mutants of the packages, from each module in proportion to its lines."""
    paths = [path for package in settings["packages"] for path in sorted((root / "placer" / package).rglob("*.py"))]
    lines = [len(path.read_text().splitlines()) for path in paths]
    chosen, before = list[Mutant](), 0
    for path, size in zip(paths, lines, strict=True):
        share = round(count * (before + size) / sum(lines)) - round(count * before / sum(lines))
        before += size
        found = mutants_of(path.read_text(), path.relative_to(root).as_posix(), settings)
        chosen += [mutant for mutant, _ in zip(found, range(share), strict=False)]
    return chosen


def mutants_of(source: str, module: str, settings: Mapping[str, Any]) -> Iterator[Mutant]:
    """One random change at each place where something can change, the places in random order."""
    wanted = re.compile("|".join(settings["operators"]))
    names = [name for name in operator_names() if wanted.fullmatch(name.rpartition("/")[2])]
    lines, nodes, ignored = source.splitlines(), list(ast_nodes(get_ast(source))), list(_annotations(source))
    places: dict[Position, list[tuple[str, int]]] = defaultdict(list)
    for name in names:
        operator = get_operator(name)()
        positions = [position for node in nodes for position in operator.mutation_positions(node)]
        for occurrence, (start, end) in enumerate(positions):
            text = lines[start[0] - 1][start[1] : end[1]]
            if not any(low <= start < high for low, high in ignored) and not _barely(name, text):
                places[start].append((name, occurrence))
    draw = random.Random(f"{settings['seed']} {module}")
    order = sorted(places)
    draw.shuffle(order)
    for place in order:
        name, occurrence = draw.choice(places[place])
        mutated = mutate_code(source, get_operator(name)(), occurrence)
        if mutated is None or mutated == source:
            continue
        line = place[0]
        after = "" if name.endswith("RemoveDecorator") else mutated.splitlines()[line - 1].strip()
        change = {"module": module, "before": lines[line - 1].strip(), "after": after}
        if not any(re.search(kind["operator"], name) and re.search(kind["before"], change["before"])
                   for kind in settings["kinds"]):  # fmt: skip
            known = (each["reason"] for each in settings["equivalents"] if change.items() <= each.items())
            yield Mutant(line=line, operator=name, source=mutated, reason=next(known, ""), **change)


def _annotations(source: str) -> Iterator[tuple[Position, Position]]:
    """Where types stand, which nothing evaluates."""
    for node in ast.walk(ast.parse(source)):
        for each in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if isinstance(each, ast.expr):
                yield (each.lineno, each.col_offset), (each.end_lineno or 0, each.end_col_offset or 0)


def _barely(operator: str, text: str) -> bool:
    """Whether a number changes by a thousandth at most: no tolerance of a test should be that narrow."""
    return operator.endswith("NumberReplacer") and abs(ast.literal_eval(text)) >= 1000

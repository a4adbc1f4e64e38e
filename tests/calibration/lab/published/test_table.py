"""The tables of published measurements: what is in them, what the reader makes of it, and where it comes from."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache

import pytest

from placer.calibration.lab.published import PublishedOp, PublishedStep, read_ops, read_steps, table
from placer.profile import find_gpu

HELD_OUT_GPUS = {"NVIDIA TITAN RTX", "NVIDIA GeForce RTX 4060 Ti 16GB", "NVIDIA GeForce RTX 3080 Ti Laptop GPU"}


@cache
def ops() -> tuple[PublishedOp, ...]:
    """Every fortieth row: reading all takes half a minute."""
    rows = table._rows
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "_rows", lambda name: (row for i, row in enumerate(rows(name)) if i % 40 == 0))
        return tuple(read_ops())


@cache
def steps() -> tuple[PublishedStep, ...]:
    return tuple(read_steps())


def test_every_row_is_of_a_cited_and_licensed_source() -> None:
    cited = json.loads((table.DATA / "sources.json").read_text(encoding="utf-8"))
    used = {step.source for step in steps()} | {row["source"] for row in table._rows("ops.csv.xz")}
    used |= {problem.source for problem in table.read_problems()}
    assert used == set(cited)
    for source in cited.values():
        assert set(source) == {"citation", "commit", "licence", "url", "measured"}
        assert source["url"].startswith("https://")
        assert source["licence"].partition(" ")[0] in {"MIT", "Apache-2.0", "BSD-3-Clause"}


def test_every_gpu_is_in_the_catalog_by_its_own_name() -> None:
    for name in {op.gpu for op in ops()} | {step.gpu for step in steps()}:
        assert find_gpu(name).name == name


def test_a_fifth_is_held_out_and_so_are_three_gpus() -> None:
    assert {op.use for op in ops()} == {"fit", "held out"}
    assert 0.15 < sum(op.use == "held out" for op in ops()) / len(ops()) < 0.25
    used = Counter(step.use for step in steps())
    assert set(used) == {"fit", "held-out network", "held-out GPU", "check", "compiled"}
    assert 0.12 < used["held-out network"] / (used["held-out network"] + used["fit"]) < 0.25
    fitted = {step.network for step in steps() if step.use == "fit"}
    assert fitted.isdisjoint(step.network for step in steps() if step.use == "held-out network")
    assert {step.gpu for step in steps() if step.use == "held-out GPU"} == HELD_OUT_GPUS
    assert HELD_OUT_GPUS.isdisjoint(step.gpu for step in steps() if step.use in ("fit", "held-out network"))

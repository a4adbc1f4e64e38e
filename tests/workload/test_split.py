"""Which submodules can stay on the CPU, and what their names stand for."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from torch import nn

from placer.workload import Workload, check_on_cpu, cpu_part, embedding_tables, make_workload, weight_share


class Recommender(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.EmbeddingBag(1000, 8) for _ in range(3)])
        self.tower = nn.Sequential(nn.Embedding(500, 8), nn.Flatten())
        self.dense = nn.Sequential(nn.Linear(8, 4), nn.ReLU())


def workload(model: nn.Module) -> Workload:
    return make_workload(model, (2, 8))


def divided(model: nn.Module, names: Any) -> Workload:
    found = workload(model)
    return dataclasses.replace(found, on_cpu=check_on_cpu(names, found))


def test_a_list_of_modules_stands_for_those_it_holds_and_a_sequence_for_itself() -> None:
    part = cpu_part(divided(Recommender(), ["tables", "tower"]))
    assert part.units == ("tables.0", "tables.1", "tables.2", "tower")
    assert part.parameters == {0, 1, 2, 3}
    assert part.unit("tower.0") == "tower"
    assert part.unit("tables.10") is part.unit("") is part.unit("dense.0") is None


def test_a_name_inside_another_adds_nothing() -> None:
    assert check_on_cpu(["tables.0", "tables", "tables"], workload(Recommender())) == ("tables",)
    assert check_on_cpu("tables", workload(Recommender())) == ("tables",)
    assert check_on_cpu((), workload(Recommender())) == ()


@pytest.mark.parametrize(("names", "message"), [
    (["tabels"], "no submodule 'tabels'; did you mean 'tables'?"),
    (["x" * 20], "no submodule 'xxxxxxxxxxxxxxxxxxxx'; it has 'tables', 'tables.0', .* and 2 more"),
    ([""], "covers all weights of the model"),
    (["tables", "tower", "dense.0"], "covers all weights .* the row cpu"),
])  # fmt: skip
def test_names_that_do_not_divide_the_model_are_refused(names: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_on_cpu(names, workload(Recommender()))


@pytest.mark.parametrize("names", [3, None, [3]])
def test_what_is_no_name_is_refused(names: Any) -> None:
    with pytest.raises(TypeError, match="on_cpu must be names of submodules"):
        check_on_cpu(names, workload(Recommender()))


def test_shared_weights_are_on_one_device() -> None:
    model = nn.ModuleDict({"words": nn.Embedding(10, 4), "head": nn.Linear(4, 10, bias=False)})
    model["head"].weight = model["words"].weight
    model["more"] = nn.Linear(2, 2)
    with pytest.raises(ValueError, match=r"head\.weight shares its weights with a module that stays on the CPU"):
        check_on_cpu("words", workload(model))


def test_a_step_function_is_on_one_device() -> None:
    with pytest.raises(ValueError, match="a step function is priced on one device"):
        check_on_cpu("tables", make_workload(lambda x: x, (2, 8)))


def test_embeddings_are_found_as_high_up_as_they_are_alone() -> None:
    found = workload(Recommender())
    assert embedding_tables(found) == ("tables", "tower")
    assert weight_share(found, embedding_tables(found)) == pytest.approx(3500 * 8 / (3500 * 8 + 36))
    assert embedding_tables(workload(nn.Sequential(nn.Linear(8, 4), nn.ReLU()))) == ()

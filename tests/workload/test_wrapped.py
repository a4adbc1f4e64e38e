"""Whether ``torch.compile`` was asked for, told without compiling anything."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from placer.workload import compiled_inside, compiled_mode

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


@pytest.mark.parametrize("mode", MODES)
def test_the_mode_of_a_module_a_compiled_call_and_a_function(mode: str) -> None:
    in_place = nn.Linear(2, 2)
    in_place.compile(mode=mode)
    assert compiled_mode(torch.compile(nn.Linear(2, 2), mode=mode)) == mode
    assert compiled_mode(in_place) == mode
    assert compiled_mode(torch.compile(lambda x: x + 1, mode=mode)) == mode


def test_what_is_not_compiled_has_no_mode() -> None:
    model = nn.Linear(2, 2)
    compiled = torch.compile(model)
    assert compiled_mode(compiled) == "default"
    for eager in (model, model.forward, torch.relu, lambda x: x, torch.compile(model, disable=True)):
        assert compiled_mode(eager) is None


@pytest.mark.parametrize(
    ("backend", "name"), [("eager", "backend eager"), ("aot_eager", "backend aot_eager"), (lambda g, _: g, "backend ")]
)
def test_another_backend_is_named(backend: Any, name: str) -> None:
    assert str(compiled_mode(torch.compile(nn.Linear(2, 2), backend=backend))).startswith(name)


def test_options_count_as_the_mode_they_select() -> None:
    assert compiled_mode(torch.compile(nn.Linear(2, 2), options={"triton.cudagraphs": True})) == "reduce-overhead"


def test_compiled_parts_are_found_by_their_paths() -> None:
    model = nn.Sequential(nn.Linear(2, 2), torch.compile(nn.Linear(2, 2)), nn.Linear(2, 2))
    model[2].compile()
    assert compiled_inside(model) == ["1", "2"]
    assert compiled_inside(nn.Sequential(nn.Linear(2, 2))) == []

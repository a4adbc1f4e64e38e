from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.explanation import LayerRow
from placer.explanation.layers import gathered, lines, tree


def rows(*parts: tuple[str, str, float]) -> list[LayerRow]:
    return [LayerRow(name, phase, {"cpu": seconds, "cuda": 2 * seconds}) for name, phase, seconds in parts]


def test_layers_are_nested_as_the_model_and_small_ones_gathered() -> None:
    parts = rows(
        ("a.x", "forward", 95.0),
        ("a.y", "loss", 2.0),
        ("s1", "forward", 0.5),
        ("s2.deep", "forward", 0.5),
        ("", "loss", 2.0),
    )
    shown = [(depth, node.label, node.seconds["cpu"]) for depth, node in lines(tree(parts))]
    assert shown == [
        (0, "(whole model)", 100.0),
        (1, "a", 97.0),
        (2, "x", 95.0),
        (2, "y", 2.0),
        (1, "(other layers)", 1.0),
        (1, "(itself)", 2.0),
    ]


def numbered(*seconds: float) -> list[LayerRow]:
    parts = [(f"layer.{n}.{part}", "forward", s / 2) for n, s in enumerate(seconds) for part in ("a", "b")]
    return rows(*parts)


def test_numbered_layers_that_are_alike_are_one_row_and_what_is_in_them_too() -> None:
    root = gathered(tree(numbered(1.0, 1.1, 0.9, 5.0)))
    (layer,) = root.children.values()
    assert list(layer.children) == ["0-2 (3 alike)", "3"]
    together = layer.children["0-2 (3 alike)"]
    assert together.seconds["cpu"] == pytest.approx(3.0)
    assert {name: child.seconds["cpu"] for name, child in together.children.items()} == {
        "a": pytest.approx(1.5),
        "b": pytest.approx(1.5),
    }


@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=12))
def test_gathering_keeps_every_sum(seconds: list[float]) -> None:
    before = tree(numbered(*seconds))
    after = gathered(before)
    assert after.seconds == before.seconds
    below = [child.seconds["cpu"] for child in after.children["layer"].children.values()]
    assert sum(below) == pytest.approx(after.seconds["cpu"])


names = st.lists(st.sampled_from(["a", "b", "c"]), max_size=4).map(".".join)


@given(st.lists(st.tuples(names, st.sampled_from(["forward", "backward"]), st.floats(0, 10)), max_size=20))
def test_the_rows_below_a_row_add_up_to_it(parts: list[tuple[str, str, float]]) -> None:
    found = list(lines(tree(rows(*parts))))
    for index, (depth, node) in enumerate(found):
        below = []
        for deeper, other in found[index + 1 :]:
            if deeper <= depth:
                break
            if deeper == depth + 1:
                below.append(other.seconds["cpu"])
        if below:
            assert sum(below) == pytest.approx(node.seconds["cpu"], rel=1e-9, abs=1e-9)
    whole = found[0][1].seconds.get("cpu", 0.0)
    assert whole == pytest.approx(sum(seconds for _, _, seconds in parts))

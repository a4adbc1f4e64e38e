from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.explanation import LayerRow
from placer.explanation.layers import gathered, lines, percents, tree


def rows(*parts: tuple[str, str, float]) -> list[LayerRow]:
    return [LayerRow(name, phase, {"cpu": seconds, "cuda": 2 * seconds}) for name, phase, seconds in parts]


def shown(parts: list[LayerRow], device: str | None = "cpu") -> list[tuple[int, str, float]]:
    found = lines(tree(parts, device), 0.01, add_columns=device is not None)
    return [(line.depth, line.node.label, round(sum(line.node.seconds.values()), 6)) for line in found]


def test_layers_are_nested_as_the_model_and_small_ones_gathered() -> None:
    parts = rows(
        ("a.x", "forward", 95.0),
        ("a.y", "loss", 2.0),
        ("s1", "forward", 0.5),
        ("s2.deep", "forward", 0.5),
        ("", "loss", 2.0),
    )
    assert shown(parts) == [
        (0, "(whole model)", 100.0),
        (1, "a", 97.0),
        (2, "x", 95.0),
        (2, "y", 2.0),
        (1, "(other layers)", 1.0),
        (1, "(itself)", 2.0),
    ]
    by_device = list(lines(tree(parts, None), 0.01, add_columns=False))
    assert by_device[1].node.seconds == {"cpu": 97.0, "cuda": 194.0}
    assert percents(by_device, ["cpu"]) == percents(by_device, ["cuda"]) == [100, 97, 95, 2, 1, 2]


def numbered(*seconds: float) -> list[LayerRow]:
    parts = [(f"layer.{n}.{part}", "forward", s / 2) for n, s in enumerate(seconds) for part in ("a", "b")]
    return rows(*parts)


def test_numbered_layers_that_are_alike_are_one_row_and_what_is_in_them_too() -> None:
    root = gathered(tree(numbered(1.0, 1.1, 0.9, 5.0), None))
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
    before = tree(numbered(*seconds), None)
    after = gathered(before)
    assert after.seconds == before.seconds
    below = [child.seconds["cpu"] for child in after.children["layer"].children.values()]
    assert sum(below) == pytest.approx(after.seconds["cpu"])


names = st.lists(st.sampled_from(["a", "b", "c"]), max_size=4).map(".".join)


@given(st.lists(st.tuples(names, st.sampled_from(["forward", "backward"]), st.floats(0, 10)), max_size=20))
def test_the_rows_below_a_row_add_up_to_it(parts: list[tuple[str, str, float]]) -> None:
    found = list(lines(tree(rows(*parts), "cpu"), 0.01, add_columns=True))
    for index, line in enumerate(found):
        below = []
        for other in found[index + 1 :]:
            if other.depth <= line.depth:
                break
            if other.depth == line.depth + 1:
                below.append(sum(other.node.seconds.values()))
        if below:
            assert sum(below) == pytest.approx(sum(line.node.seconds.values()), rel=1e-9, abs=1e-9)
    whole = sum(found[0].node.seconds.values())
    shares = percents(found, ["forward", "backward"])
    for index, line in enumerate(found):
        deeper = next((n for n in range(index + 1, len(found)) if found[n].depth <= line.depth), len(found))
        below = [shares[n] for n in range(index + 1, deeper) if found[n].depth == line.depth + 1]
        assert sum(below) == shares[index] or not below
        assert shares[index] == pytest.approx(100 * sum(line.node.seconds.values()) / whole if whole else 0.0, abs=5.0)
    assert sum(found[0].node.seconds.values()) == pytest.approx(sum(seconds for _, _, seconds in parts))

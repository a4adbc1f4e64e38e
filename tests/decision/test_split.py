"""A model on two devices beside one: in the comparison, in what is said of it, and as advice."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import placer
from placer.decision import is_cpu
from placer.decision.plan import occupied
from placer.decision.split import is_split
from placer.errors import ProfileError
from placer.explanation import Advice, Explanation
from placer.explanation.verdict import advice_lines
from placer.profile.profile import Profile


class Recommender(nn.Module):
    """Large tables without values, and a wide tower beside them."""

    def __init__(self, rows: int = 100_000, *, sparse: bool = True) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.EmbeddingBag(rows, 64, sparse=sparse, device="meta") for _ in range(2)])
        self.tower = nn.Sequential(nn.Linear(128, 2048), nn.ReLU(), nn.Linear(2048, 1))

    def forward(self, rows: Tensor) -> Tensor:
        found = [table(rows[:, n : n + 1]) for n, table in enumerate(self.tables)]
        result: Tensor = self.tower(torch.cat(found, 1))
        return result


def explained(known: Profile, model: nn.Module | None = None, **values: Any) -> Explanation:
    example = torch.zeros(512, 2, dtype=torch.int64)
    return placer.explain(model or Recommender(), example=example, optimizer="sgd", profile=known, **values)


def advised(found: Explanation) -> list[Advice]:
    return [row for row in found.advice if row.kind == "split"]


def with_memory(known: Profile, nbytes: float) -> Profile:
    """The profile of a machine with enough memory, and an accelerator that has this many bytes of it."""
    accelerator = {"device": "cuda", "memory_bytes": int(nbytes + 5e8)}  # a context takes the rest
    fingerprint = {**known.fingerprint, "memory_bytes": int(1e12), "accelerators": [accelerator]}
    return dataclasses.replace(known, fingerprint=fingerprint)


def good_at_one_thing_each(known: Profile) -> Profile:
    """A CPU with little arithmetic, and a GPU with little bandwidth."""
    changed = ({"flops/float32": 5e9}, {"bytes_per_second": 1e9})
    fits = tuple(dataclasses.replace(f, rates={**f.rates, **c}) for f, c in zip(known.fits, changed, strict=True))
    return dataclasses.replace(known, fits=fits)


def test_a_split_stands_beside_the_devices(handmade_profile: Profile) -> None:
    found = explained(handmade_profile, on_cpu=["tables"])
    assert list(found.devices) == ["cpu", "cuda", "cuda+cpu"]
    assert not is_cpu("cuda+cpu")
    assert list(map(is_split, ["cuda+cpu", "cuda@Tesla T4+cpu", "cpu", "cuda"])) == [True, True, False, False]
    row = found.devices["cuda+cpu"]
    assert sum(line.devices["cuda+cpu"] for line in found.layers) == pytest.approx(row.components["compute"])
    assert sum(found.bounds["cuda+cpu"].values()) == pytest.approx(row.components["compute"])
    assert {span.label for span in found.timeline["cuda+cpu"]} >= {"copy to the CPU", "copy from the CPU"}
    assert "cuda+cpu" in str(found)
    assert "cuda+cpu" in found.to_html()
    assert Explanation.from_dict(json.loads(found.to_json())) == found


def test_a_gpu_of_the_catalog_is_split_with_this_cpu(handmade_profile: Profile) -> None:
    found = explained(handmade_profile, on_cpu="tables", what_if="T4", devices=["cpu"])
    assert list(found.devices) == ["cpu", "cuda@Tesla T4", "cuda@Tesla T4+cpu"]
    alone, split = found.devices["cuda@Tesla T4"], found.devices["cuda@Tesla T4+cpu"]
    assert split.provenance == alone.provenance
    assert split.peak_memory_bytes < alone.peak_memory_bytes
    assert sum(note.startswith("Tesla T4: ") for note in found.notes) == 1


def test_without_an_accelerator_there_is_nothing_to_divide(handmade_profile: Profile) -> None:
    with pytest.raises(ProfileError, match=r"on_cpu leaves the rest .* what_if"):
        explained(handmade_profile, on_cpu="tables", devices=["cpu"])
    only = dataclasses.replace(handmade_profile, fits=handmade_profile.fits[1:])
    with pytest.raises(ProfileError, match="on_cpu needs the numbers of a CPU"):
        explained(only, on_cpu="tables")


def test_a_wrong_name_is_refused_before_anything_is_traced(handmade_profile: Profile) -> None:
    with pytest.raises(ValueError, match="did you mean 'tables'"):
        explained(handmade_profile, on_cpu="table")


def test_a_split_is_not_told_to_be_busy() -> None:
    assert occupied(["cuda+cpu", "cuda@Tesla T4+cpu", "cpu"]) == ()


def test_no_advice_where_the_accelerator_is_faster(handmade_profile: Profile) -> None:
    assert advised(explained(handmade_profile)) == []


def test_advice_where_the_split_is_faster(handmade_profile: Profile) -> None:
    known = good_at_one_thing_each(handmade_profile)
    model = Recommender(sparse=False)
    (row,) = advised(explained(known, model))
    split = explained(known, model, on_cpu=["tables"])
    assert row.how == "on_cpu=['tables']"
    assert row.change == "tables on the CPU, the rest on cuda"
    assert row.device == split.decision.device == "cuda+cpu"
    assert row.after == pytest.approx(split.devices["cuda+cpu"].step_seconds)
    assert row.gain == pytest.approx(1.0 - row.after / row.before)


def test_advice_where_it_is_the_only_way_to_fit(handmade_profile: Profile) -> None:
    found = explained(with_memory(handmade_profile, 1e8), Recommender(1_000_000))
    assert not found.devices["cuda"].fits
    (row,) = advised(found)
    assert row.fits_on == "cuda"
    assert any(line.startswith("the only way to fit on cuda, ") for line in advice_lines(found))


def test_no_advice_on_small_embeddings_nor_where_there_is_nothing_else(handmade_profile: Profile) -> None:
    known = with_memory(handmade_profile, 1.0)
    assert advised(explained(known, Recommender(100))) == []
    only = nn.Sequential(nn.Embedding(100_000, 64, device="meta"), nn.Flatten())
    assert advised(explained(known, only)) == []

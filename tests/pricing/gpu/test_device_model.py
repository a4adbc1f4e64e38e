"""The device model: published knowledge of GPUs, and its learnt part."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from described import spec, work
from torch import Tensor, nn

from placer.errors import UnknownGPU
from placer.pricing import describe_step
from placer.pricing.gpu import device_model as model_module
from placer.pricing.gpu import device_model as module
from placer.pricing.gpu.device_model import UNTRIED_SIGMA, USUAL, DeviceModel, Network, device_model, edition, networks
from placer.pricing.gpu.physics import COLUMNS, LAUNCH, Row, rows_of
from placer.pricing.work import Work
from placer.profile import find_gpu, gpus
from placer.tracing import trace
from placer.workload import make_workload


def silu(x: float) -> float:
    return float(x / (1.0 + np.exp(-x)))


def handmade(bias: float = 0.1) -> Network:
    """One input, one number of a GPU, one of a label, two layers of one unit and the last."""
    first = np.array([[0.5], [2.0], [1.0]]), np.array([0.25])
    second = np.array([[1.5]]), np.array([-0.5])
    last = np.array([[0.5]]), np.array([bias])
    return Network(
        low=np.array([0.0]), high=np.array([10.0]), mean=np.array([4.0]), scale=np.array([2.0]),
        gpus={"Tesla T4": np.array([0.3])},
        labels={"elementwise:add": np.array([0.7]), "elementwise:": np.array([-0.2]), "": np.array([0.05])},
        trust={"elementwise:add": 1.0, "elementwise:": 0.7, "": 0.5}, layers=(first, second, last), sigma=(0.1, 0.4),
    )  # fmt: skip


def by_hand(x: float, gpu: float, label: float) -> float:
    hidden = silu(0.5 * (min(max(x, 0.0), 10.0) - 4.0) / 2.0 + 2.0 * gpu + label + 0.25)
    return 0.5 * silu(1.5 * hidden - 0.5) + 0.1


@pytest.mark.parametrize("x", [-3.0, 0.0, 6.0, 10.0, 99.0])
def test_it_is_evaluated_as_by_hand_and_extrapolates_nothing(x: float) -> None:
    learnt, sigma = handmade().evaluate(np.array([[x]]), ["elementwise:add"], "Tesla T4")
    assert learnt == pytest.approx([by_hand(x, 0.3, 0.7)])
    assert sigma.tolist() == [0.1]


@pytest.mark.parametrize(("label", "number", "trust"), [
    ("elementwise:add", 0.7, 1.0), ("elementwise:never_seen", -0.2, 0.7), ("family_never_seen:op", 0.05, 0.5),
    ("convolution", 0.05, 0.5),
])  # fmt: skip
def test_an_unknown_op_is_taken_as_its_family_and_an_unknown_family_as_any_op(
    label: str, number: float, trust: float
) -> None:
    learnt, sigma = handmade().evaluate(np.array([[3.0]]), [label], "Tesla T4")
    assert learnt == pytest.approx([USUAL + trust * (by_hand(3.0, 0.3, number) - USUAL)])
    assert sigma == pytest.approx([np.hypot(0.1, (1.0 - trust) * UNTRIED_SIGMA)])


def test_an_unknown_gpu_has_no_numbers_and_more_doubt() -> None:
    found = handmade()
    learnt, sigma = found.evaluate(np.array([[3.0]]), ["elementwise:add"], "Apple M1")
    assert learnt == pytest.approx([by_hand(3.0, 0.0, 0.7)])
    assert sigma.tolist() == [0.4]
    assert (found.knows("Tesla T4"), found.knows("Apple M1")) == (True, False)


def test_rows_are_evaluated_each_on_its_own() -> None:
    x, labels = np.array([[1.0], [5.0], [9.0]]), ["elementwise:add", "elementwise:mul", "softmax:_softmax"]
    together = handmade().evaluate(x, labels, "Tesla T4")[0]
    alone = [handmade().evaluate(x[i : i + 1], labels[i : i + 1], "Tesla T4")[0][0] for i in range(3)]
    assert together == pytest.approx(alone)


def test_there_is_one_for_every_kind_of_row() -> None:
    found = networks()
    assert set(found) == set(COLUMNS)
    for kind, each in found.items():
        assert "" in each.labels, kind
        assert 0.0 < each.sigma[0] <= each.sigma[1] < 1.0, kind
        arrays = [each.low, each.high, each.mean, each.scale, *each.gpus.values(), *each.labels.values()]
        assert all(np.isfinite(a).all() for a in [*arrays, *(part for layer in each.layers for part in layer)]), kind
        assert (each.scale > 0.0).all(), kind
        assert (each.low <= each.high).all(), kind


def test_without_the_file_there_are_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert edition() > 0.0
    monkeypatch.setattr(model_module, "FILE", tmp_path / "published.json")
    for cached in (networks, edition):
        cached.cache_clear()
    try:
        assert (networks(), edition()) == ({}, 0.0)
    finally:
        for cached in (networks, edition):
            cached.cache_clear()


def test_the_file_counts_the_rows_of_gpus_that_are_in_the_catalog() -> None:
    from placer.profile import gpus

    rows = json.loads(model_module.FILE.read_text(encoding="utf-8"))["rows"]
    assert rows
    assert set(rows) <= set(gpus())
    assert all(isinstance(count, int) and count > 0 for count in rows.values())
    assert {name for each in networks().values() for name in each.gpus} == set(rows)

#: The part of a step's price by which twice the batch may cost less: what is learnt of small kernels is not monotonic
#: (a recurrent layer on a P100 by 19 %).
DIP = 0.2


class Recurrent(nn.Module):
    """An LSTM and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.LSTM(32, 64, batch_first=True), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.layer(x)[0][:, -1])
        return out


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, groups=16), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.1), nn.Linear(16 * 15 * 15, 10),
    )  # fmt: skip


STEPS: Mapping[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "convolutional": (convolutional, (3, 32, 32)),
    "transformer": (lambda: nn.TransformerEncoderLayer(64, 4, dim_feedforward=128, batch_first=True), (32, 64)),
    "recurrent": (Recurrent, (20, 32)),
}


@cache
def step(name: str, batch: int, mode: str = "train") -> list[Work]:
    model, shape = STEPS[name]
    return describe_step(trace(make_workload(model(), (batch, *shape), mode=mode)))


@pytest.fixture
def precision() -> Iterator[None]:
    """The process's switches for TF32 are left as they were."""
    before = torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()
    yield
    torch.backends.cudnn.allow_tf32 = before[0]
    torch.set_float32_matmul_precision(before[1])


@pytest.mark.parametrize("name", STEPS)
def test_every_gpu_of_the_catalog_prices_a_step(name: str) -> None:
    works = step(name, 16)
    launching = [bool(rows_of(each)) for each in works]
    for sheet in gpus().values():
        seconds, sigmas, sources = DeviceModel(sheet).price(works)
        assert np.isfinite(seconds).all(), sheet.name
        assert [each >= LAUNCH for each in seconds] == launching, sheet.name
        assert all(0.0 < sigma < 1.0 for sigma, own in zip(sigmas, launching, strict=True) if own), sheet.name
        assert len(set(sources)) == 1
        assert 1e-6 * len(works) < sum(seconds) < 0.1, sheet.name


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("name", STEPS)
def test_twice_the_batch_never_costs_less(name: str, mode: str) -> None:
    for gpu in ("T4", "V100", "A100", "H100", "RTX 4090", "P100", "MI210", "Arc A770", "M1 Pro", "GTX 1080 Ti", "B200"):
        model = device_model(gpu)
        whole = [sum(model.price(step(name, batch, mode))[0]) for batch in (1, 2, 4, 8, 16, 32, 64, 128, 256)]
        for less, more in itertools.pairwise(whole):
            assert more >= (1.0 - DIP) * less, (gpu, whole)


def test_an_empty_batch_launches_kernels_and_little_else() -> None:
    for name in ("convolutional", "transformer"):
        works = step(name, 0)
        seconds = sum(device_model("T4").price(works)[0])
        assert seconds == pytest.approx(LAUNCH * sum(len(rows_of(each)) for each in works), rel=0.5)


def test_what_takes_longer() -> None:
    works = step("transformer", 256)
    t4, a100 = (sum(device_model(gpu).price(works)[0]) for gpu in ("T4", "A100"))
    assert t4 > 1.5 * a100


def test_what_a_price_rests_on() -> None:
    for gpu, provenance in (("T4", "published"), ("A100", "published"), ("M1 Pro", "data sheet")):
        assert device_model(gpu).provenance == provenance
        assert set(device_model(gpu).price(step("recurrent", 2))[2]) == {provenance}
    both = {DeviceModel(sheet).provenance for sheet in gpus().values()}
    assert both == {"published", "data sheet"}


def test_where_the_data_sheet_is_all_there_is_more_doubt() -> None:
    works = step("transformer", 64)
    known, unknown = (np.array(device_model(gpu).price(works)[1]) for gpu in ("A100", "M1 Pro"))
    assert (known <= unknown).all()


def test_a_gradient_of_two_rows_is_their_sum() -> None:
    model = device_model("T4")
    gradient = next(each for each in step("convolutional", 16) if each.family == "convolution_backward")
    parts = [float(model.price_rows(row.kind, model._dtype(row), [row])[0][0]) for row in rows_of(gradient)]
    assert len(parts) == 2
    assert model.price([gradient])[0] == pytest.approx([sum(parts)])


def test_ops_are_priced_alike_together_and_alone() -> None:
    works = step("convolutional", 8)
    model = device_model("V100")
    assert model.price(works)[0] == pytest.approx([model.price([each])[0][0] for each in works])
    assert model.price([]) == ([], [], [])


def test_without_a_network_physics_stand_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "networks", dict)
    model = DeviceModel(find_gpu("T4"))
    assert model.provenance == "data sheet"
    seconds, sigmas, _ = model.price(step("recurrent", 4))
    assert min(each for each in seconds if each) >= LAUNCH
    assert {round(sigma, 12) for sigma in sigmas if sigma} == {0.5}


def product(dtype: str = "float32", kind: str = "product") -> Row:
    if kind == "product":
        x = spec(512, 512, dtype=dtype)
        return rows_of(work("aten::mm", [x, x], [x]))[0]
    if kind == "recurrent":
        x, weight = spec(8, 4, 16), spec(64, 16)
        return rows_of(work("aten::lstm", [x, weight, weight], [x], 8))[0]
    groups = 8 if kind == "depthwise" else 1
    image, weight = spec(2, 8, 9, 9), spec(8, 8 // groups, 1, 1)
    settings = (1, 1), (0, 0), (1, 1), False, (0, 0), groups
    return rows_of(work("aten::convolution", [image, weight], [image], *settings))[0]


@pytest.mark.usefixtures("precision")
def test_torch_says_whether_products_run_in_tf32() -> None:
    model = DeviceModel(find_gpu("A100"))
    for precision, dtype in (("highest", "float32"), ("high", "tf32"), ("medium", "tf32")):
        torch.set_float32_matmul_precision(precision)
        assert model._dtype(product()) == dtype
        assert model._dtype(product("float16")) == "float16"


@pytest.mark.usefixtures("precision")
@pytest.mark.parametrize("kind", ["convolution", "depthwise", "recurrent"])
def test_torch_says_whether_cudnn_runs_in_tf32(kind: str) -> None:
    torch.set_float32_matmul_precision("highest")
    for allowed in (True, False):
        torch.backends.cudnn.allow_tf32 = allowed
        row = product(kind=kind)
        assert row.kind == kind
        assert DeviceModel(find_gpu("A100"))._dtype(row) == ("tf32" if allowed else "float32")
        assert DeviceModel(find_gpu("T4"))._dtype(row) == "float32"
        assert DeviceModel(find_gpu("MI300X"))._dtype(row) == "float32"


@pytest.mark.usefixtures("precision")
def test_tf32_shortens_a_large_product() -> None:
    x = spec(4096, 4096)
    large = work("aten::mm", [x, x], [x])
    torch.set_float32_matmul_precision("highest")
    (plain,) = device_model("A100").price([large])[0]
    torch.set_float32_matmul_precision("high")
    (fast,) = device_model("A100").price([large])[0]
    assert fast < 0.5 * plain
    assert 0.5 < plain / (2.0 * 4096**3 / 19.5e12) < 2.0


def test_names_that_mean_one_gpu_or_none() -> None:
    assert device_model("Tesla T4").sheet == device_model("T4").sheet
    with pytest.raises(UnknownGPU):
        device_model("T44")


def test_every_kind_is_learnt() -> None:
    seen = {row.kind for name in STEPS for each in step(name, 4) for row in rows_of(each)}
    assert seen == set(networks())

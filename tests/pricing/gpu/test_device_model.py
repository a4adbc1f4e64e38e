"""Whole steps on every GPU of the catalog: prices that make sense, what they rest on, and TF32."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import cache

import numpy as np
import pytest
import torch
from described import spec, work
from torch import Tensor, nn

from placer.errors import UnknownGPU
from placer.pricing import describe_step
from placer.pricing.gpu import device_model as module
from placer.pricing.gpu.device_model import DeviceModel, device_model
from placer.pricing.gpu.network import networks
from placer.pricing.gpu.physics import LAUNCH
from placer.pricing.gpu.rows import Row, rows_of
from placer.pricing.work import Work
from placer.profile import find_gpu, gpus
from placer.tracing import trace
from placer.workload import make_workload

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

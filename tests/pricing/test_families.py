"""What ops are described by: families, FLOPs, features that tell all, and where they stand in their step."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from described import spec, traced, work
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from placer.nest import tensors
from placer.pricing import CostModel, on_accelerator, op_label
from placer.pricing.gpu import rows_of
from placer.pricing.ops import UPDATE_PREFIX, updates
from placer.pricing.work import work_of_features
from placer.profile import load


class Attend(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (2, -1)).transpose(1, 2) for t in self.project(x).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()


ENCODER_WEIGHTS = 16 * 48 + 16 * 16 + 2 * 16 * 32
#: A layer, the shape of its batch, one of its ops, and the FLOPs of that in training (the encoder: in inference).
LAYERS: list[tuple[Callable[[], nn.Module], tuple[int, ...], str, int]] = [
    (lambda: nn.Conv1d(3, 8, 5), (2, 3, 20), "convolution", 7680),
    (lambda: nn.Conv2d(4, 8, 3, stride=2, padding=1), (1, 4, 8, 8), "convolution", 2 * 16 * 8 * 36),
    (lambda: nn.Conv3d(2, 4, 3, padding=1), (1, 2, 4, 4, 4), "convolution", 2 * 64 * 8 * 27),
    (lambda: nn.Conv2d(8, 16, 3, groups=4), (2, 8, 10, 10), "convolution", 2 * 128 * 16 * 18),
    (lambda: nn.ConvTranspose2d(8, 6, 3, stride=2), (2, 8, 5, 5), "convolution", 2 * 50 * 48 * 9),
    (lambda: nn.Conv2d(3, 16, 1), (1, 3, 4, 4), "convolution_backward", 1536),
    (lambda: nn.Linear(5, 7), (3, 5), "addmm", 210),
    (Attend, (3, 5, 8), "scaled_dot_product_attention", 2 * 2 * 6 * 25 * 4),
    (Attend, (3, 5, 8), "scaled_dot_product_attention_backward", 5 * 2 * 6 * 25 * 4),
    (encoder, (3, 7, 16), "_transformer_encoder_layer_fwd", 42 * ENCODER_WEIGHTS + 4 * 21 * 7 * 16),
    (lambda: nn.LSTM(5, 7), (3, 4, 5), "lstm", 24 * 28 * 12),
    (lambda: nn.LSTM(5, 7), (3, 4, 5), "lstm_backward", 48 * 28 * 12),
    (lambda: nn.GRU(5, 7, bidirectional=True), (3, 4, 5), "gru", 24 * 2 * 21 * 12),
    (lambda: nn.RNNCell(5, 7), (4, 5), "rnn_tanh_cell", 8 * 7 * 12),
]


@pytest.mark.parametrize("number", range(len(LAYERS)), ids=lambda i: f"{LAYERS[i][2]}-{i}")
def test_an_op_of_a_layer_has_its_flops_and_features_that_tell_all_that_it_is_priced_by(number: int) -> None:
    """So that what a journal keeps of an op is as good as the op."""
    build, shape, op, flops = LAYERS[number]
    model = build()
    found = traced(model, f"aten::{op}", shape, mode="train" if model.training else "infer")
    assert found.flops == flops
    again = work_of_features(found.family, found.op, found.dtype, found.features, found.effort, found.loads)
    assert again.features == found.features
    assert op_label(again) == op_label(found)
    assert rows_of(again) == rows_of(found)
    for fit in load("amd-epyc-2-core").fits:
        assert CostModel(fit).price_works([again]) == CostModel(fit).price_works([found])


def test_views_move_nothing_and_updates_in_place_do() -> None:
    view = work("aten::transpose", [spec(8, 4)], [spec(4, 8)], view=True)
    assert (view.family, view.flops, view.bytes) == ("view", 0, 0)
    added = work("aten::add_", [spec(64), spec(64)], [spec(64)], view=True, in_place=True)
    assert (added.bytes, op_label(added)) == (768, "aten::add")  # not another op


class Counted(TorchDispatchMode):
    """Counts the ops over lists of tensors, and how many times all of those tensors are read and written."""

    def __init__(self, tensors: int) -> None:
        super().__init__()
        self.tensors, self.ops, self.passes = tensors, 0, 0.0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        read = {t.data_ptr() for t in tensors((args, kwargs)) if t.numel() > 1}
        written = {t.data_ptr() for t in tensors(result if result is not None else args[0]) if t.numel() > 1}
        if func._overloadpacket.__name__.startswith("_foreach") and read:
            self.ops += 1
            self.passes += len(read) / self.tensors + len(written) / self.tensors
        return result


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((row.op.removeprefix(UPDATE_PREFIX), {}) for row in updates()),
        ("SGD", {"momentum": 0.9}),
        ("SGD", {"weight_decay": 0.1}),
        ("Adam", {"weight_decay": 0.1}),
    ],
)
def test_the_table_of_updates_is_what_torch_runs(name: str, settings: dict[str, float]) -> None:
    parameters = [nn.Parameter(torch.randn(64)) for _ in range(3)]
    optimizer = getattr(torch.optim, name)(parameters, lr=1e-3, foreach=True, **settings)
    for _ in range(8):  # the first steps of some differ
        for parameter in parameters:
            parameter.grad = torch.randn(64)
        with Counted(len(parameters)) as counted:
            optimizer.step()
    known = work(f"optimizer::{name}", [spec(1000)], [], *settings.items(), phase="optimizer")
    assert counted.ops == pytest.approx(known.shape.launches(known))
    assert round(counted.passes) == round(on_accelerator(known).bytes / 4000)

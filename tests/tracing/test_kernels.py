"""Which kernels there are: what the CPU lacks is what it refuses to run, and what accelerators alone have."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from forwards import module
from torch import Tensor, nn

from placer.tracing import MissingKernel, Trace, trace
from placer.workload import make_workload


def missing(function: Callable[[Tensor], Any], x: Tensor, mode: Any = "infer") -> MissingKernel | None:
    found = trace(make_workload(module(lambda self, x: function(x)), x, mode=mode))
    assert not found.real
    return found.missing_on_cpu


def refused(function: Callable[[Tensor], Any], x: Tensor) -> bool:
    try:
        function(x)
    except RuntimeError:
        return True
    return False


LARGE = (40, 60, 60)
CALLS: dict[str, tuple[Callable[[Tensor], Any], tuple[int, ...]]] = {
    "cdist": (lambda x: torch.cdist(x, x), (16, 8)),
    "pdist": (F.pdist, (16, 8)),
    "pdist, large": (F.pdist, (200, 100)),
    "pdist of one row": (F.pdist, (1, 8)),
    "det": (torch.linalg.det, (4, 8, 8)),
    "det, large": (torch.linalg.det, LARGE),
    "svdvals": (torch.linalg.svdvals, (4, 8, 8)),
    "cholesky of none": (torch.linalg.cholesky, (0, 0)),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2), (1, 1, 4, 4, 4)),
    "avg_pool3d, large": (lambda x: F.avg_pool3d(x, 3, 2, 1), (2, 3, 50, 50, 50)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2, 1), (2, 3, 50, 50)),
    "matmul": (lambda x: x @ x, (80, 80)),
    "attention": (lambda x: F.scaled_dot_product_attention(x, x, x), (1, 2, 3, 4)),
    "softmax": (lambda x: x.softmax(-1), (4, 5)),
    "rrelu that learns": (lambda x: F.rrelu(x, training=True), (4, 5)),
    "rrelu that does not": (lambda x: F.rrelu(x, training=False), (4, 5)),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_what_is_missing_is_what_the_cpu_refuses(name: str, dtype: torch.dtype) -> None:
    function, shape = CALLS[name]
    x = torch.zeros(shape, dtype=dtype)
    if len(shape) > 1 and shape[-1] == shape[-2]:
        x += torch.eye(shape[-1], dtype=dtype)
    found = missing(function, x)
    assert (found is not None) == refused(function, x)
    if found is not None:
        assert found.dtype == str(dtype).removeprefix("torch.")


def test_a_fourier_transform_in_half_is_refused_by_another_error() -> None:
    found = missing(lambda x: torch.fft.rfft(x).abs(), torch.zeros(4, 8, dtype=torch.float16))
    assert found == MissingKernel("aten::_fft_r2c", "float16", "")


def test_a_fused_function_is_asked_too() -> None:
    x = torch.zeros(1, 2, 3, 4, dtype=torch.float8_e4m3fn)
    with pytest.raises(NotImplementedError):
        F.scaled_dot_product_attention(x, x, x)
    found = missing(lambda x: F.scaled_dot_product_attention(x, x, x), x)
    assert found == MissingKernel("scaled_dot_product_attention", "float8_e4m3fn", "")


def test_a_kernel_for_the_gradient_counts_and_the_layer_is_named() -> None:
    @torch.library.custom_op("placer_tests::doubled", mutates_args=())
    def doubled(x: Tensor) -> Tensor:
        return 2 * x

    @torch.library.custom_op("placer_tests::doubled_gradient", mutates_args=(), device_types="cuda")
    def gradient(grad: Tensor) -> Tensor:
        return 2 * grad

    doubled.register_fake(torch.empty_like)
    gradient.register_fake(torch.empty_like)
    doubled.register_autograd(lambda context, grad: gradient(grad))
    model = nn.Sequential(nn.Linear(3, 3), module(lambda self, x: doubled(x)))
    x = torch.zeros(2, 3)
    assert trace(make_workload(model, x, mode="infer")).missing_on_cpu is None
    found = trace(make_workload(model, x, mode="train"))
    assert found.missing_on_cpu == MissingKernel("placer_tests::doubled_gradient", "", "1")
    with pytest.raises(NotImplementedError):
        model(x).sum().backward()


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_recurrent_layer_is_not_asked_with_weights_that_do_not_go_together(
    kind: Callable[..., nn.Module], dtype: torch.dtype
) -> None:
    """It would read past their end, and end the process that asks."""
    layer = kind(32, 64, num_layers=2, dtype=dtype)
    found = trace(make_workload(layer, torch.zeros(10, 16, 32, dtype=dtype), mode="train"))
    assert not found.real
    assert found.missing_on_cpu is None


FUSED = hasattr(torch.ops.aten, "_fused_rms_norm_backward")


def norms(traced: Trace) -> Iterator[tuple[str, str]]:
    return ((c.op, c.phase) for c in traced.calls if "rms_norm" in c.op)


@pytest.mark.skipif(not FUSED, reason="this torch has no such kernel on any device")
def test_rms_norm_is_one_kernel_on_cuda() -> None:
    parts = OrderedDict(linear=nn.Linear(8, 8), norm=nn.RMSNorm(8))
    traced = trace(make_workload(nn.Sequential(parts), (3, 8), mode="train", optimizer="sgd"))
    assert not list(norms(traced))
    assert "aten::rsqrt" in {c.op for c in traced.calls}
    on_cuda = traced.on("cuda")
    assert list(norms(on_cuda)) == [
        ("aten::_fused_rms_norm", "forward"),
        ("aten::_fused_rms_norm_backward", "backward"),
    ]
    assert "aten::rsqrt" not in {c.op for c in on_cuda.calls}
    forward, backward = (c for c in on_cuda.calls if "rms_norm" in c.op)
    assert [t.shape for t in forward.inputs] == [(3, 8), (8,)]
    assert [t.shape for t in backward.outputs] == [(3, 8), (8,)]
    assert forward.layer == backward.layer == "norm"
    assert on_cuda.notes == traced.notes


def weight_of_another_dtype(self: Any, x: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, (8,), torch.ones(8, dtype=torch.bfloat16, device=x.device))


def channels_last(self: Any, x: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x.expand(2, 4, 8, 8).contiguous(memory_format=torch.channels_last), (8,))


@pytest.mark.parametrize("forward", [weight_of_another_dtype, channels_last])
def test_where_torch_takes_it_apart_on_cuda_too_there_is_one_trace(forward: Callable[..., Any]) -> None:
    assert trace(make_workload(module(forward), (8, 8), mode="infer")).others == {}


def test_checks_of_linear_algebra_wait_for_the_device() -> None:
    solves = module(lambda self, a: torch.linalg.inv(a) @ torch.linalg.cholesky(a))
    traced = trace(make_workload(solves, (4, 4), mode="infer"))
    waits = Counter({c.op: c.syncs for c in traced.calls if c.syncs})
    assert waits == {"aten::_linalg_check_errors": 1}
    assert traced.syncs == 2 == sum(c.syncs for c in traced.calls)

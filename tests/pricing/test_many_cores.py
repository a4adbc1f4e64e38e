"""What cores that share an op take, by what one core takes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placer.pricing import Context, CostModel, Work, describe, describe_step
from placer.pricing.physics import Cut, cut_of, shared_seconds, threads_made
from placer.profile import Cores, load
from placer.profile.profile import Device
from placer.tracing import trace
from placer.workload import Workload


def loaded_libraries() -> str:
    """The libraries of this process, where the system lists them."""
    listed = Path("/proc/self/maps")
    return listed.read_text() if listed.exists() else ""


CORE = load("intel-xeon-avx512-2-core", samples=False).fit("cpu", 1)
REGION = 7e-6


class Op(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *operands: Tensor) -> Any:
        return self.function(*operands)


def works(function: Any, *operands: Tensor) -> list[Work]:
    module = Op(function)
    step = Workload(
        model=module,
        modules=(module,),
        args=operands,
        kwargs={},
        mode="infer",
        loss=None,
        optimizer=None,
        data="device",
    )
    traced = trace(step)
    context = Context.of(traced)
    return [describe(call, context) for call in traced.calls if not call.view]


def work(function: Any, *operands: Tensor) -> Work:
    (found,) = works(function, *operands)
    return found


def shared_by(threads: int, *, region: float = REGION, scaling: float = 1.0) -> Device:
    flops = CORE.rates["flops/float32"] * threads**scaling
    cores = Cores(CORE.rates, region, flops, CORE.rates["bytes_per_second"] * threads)
    return replace(CORE, threads=threads, cores=cores)


def seconds(of: Work, fit: Device) -> float:
    (found,), _, _ = CostModel(fit).price_works([of])
    return found


SERIAL = {
    "fill with random numbers": lambda: work(lambda x: x.uniform_(), torch.empty(1 << 20)),
    "a loss by class": lambda: works(F.nll_loss, torch.rand(4096, 64), torch.zeros(4096, dtype=torch.long))[0],
    "distinct numbers": lambda: work(torch.unique, torch.zeros(1 << 16, dtype=torch.long)),
    "a transposed copy": lambda: work(lambda x: x.t().contiguous(), torch.rand(512, 512)),
    "fewer than the grain": lambda: work(torch.relu, torch.rand(32768)),
    "one row": lambda: works(lambda x: x.sort(-1), torch.rand(1, 1 << 18))[0],
    "a small product": lambda: work(torch.mm, torch.rand(16, 16), torch.rand(16, 16)),
}
SHARED = {
    "numbers": (lambda: work(torch.relu, torch.rand(1 << 22)), 128.0),
    "functions, cut finer": (lambda: work(torch.exp, torch.rand(1 << 16)), 32.0),
    "rows": (lambda: works(lambda x: x.sort(-1), torch.rand(1024, 256))[0], 8.0),
    "normalized rows": (
        lambda: work(lambda x, w: F.layer_norm(x, (256,), w), torch.rand(64, 256), torch.ones(256)),
        64.0,
    ),
    "rows of many dimensions": (
        lambda: work(lambda x, w: F.layer_norm(x, (8, 16), w), torch.rand(32, 8, 16), torch.ones(8, 16)),
        32.0,
    ),
}


@pytest.mark.parametrize("made", SERIAL.values(), ids=list(SERIAL))
def test_what_one_core_runs_costs_the_same_with_any_number(made: Any) -> None:
    of = made()
    assert cut_of(of).pieces == 1.0
    alone = seconds(of, CORE)
    assert seconds(of, shared_by(2)) == seconds(of, shared_by(64)) == pytest.approx(alone)


@pytest.mark.parametrize(("made", "pieces"), SHARED.values(), ids=list(SHARED))
def test_torch_cuts_an_op_into_pieces(made: Any, pieces: float) -> None:
    assert cut_of(made()).pieces == pieces


@pytest.mark.parametrize(("made", "pieces"), SHARED.values(), ids=list(SHARED))
def test_a_region_is_started_once(made: Any, pieces: float) -> None:
    of = made()
    free, dear = (seconds(of, shared_by(16, region=region)) for region in (0.0, 1e-3))
    assert dear - free == pytest.approx(1e-3)


def test_more_cores_than_pieces_do_not_help() -> None:
    of = work(torch.relu, torch.rand(4 * 32768))
    assert seconds(of, shared_by(4, region=0.0)) < 0.6 * seconds(of, CORE)
    assert seconds(of, shared_by(64)) == pytest.approx(seconds(of, shared_by(4)))


@pytest.mark.parametrize(
    "made",
    [
        lambda: work(torch.mm, torch.rand(1024, 1024), torch.rand(1024, 1024)),
        lambda: work(torch.bmm, torch.rand(64, 64, 64), torch.rand(64, 64, 64)),
        lambda: work(lambda x, w: F.conv2d(x, w), torch.rand(1, 64, 56, 56), torch.rand(64, 64, 3, 3)),
        lambda: work(lambda x, w: F.conv2d(x, w), torch.rand(32, 64, 28, 28), torch.rand(64, 64, 3, 3)),
        lambda: work(lambda x: F.max_pool2d(x, 2), torch.rand(16, 64, 56, 56)),
        lambda: work(lambda x: x.sum(0), torch.rand(4096, 1024)),
    ],
)
def test_large_ops_become_faster_with_every_core_but_no_faster_than_all_of_them(made: Any) -> None:
    of = made()
    times = [seconds(of, shared_by(threads)) for threads in (2, 4, 8, 16)]
    alone = seconds(of, CORE)
    assert [alone, *times] == sorted([alone, *times], reverse=True)
    assert alone / times[-1] < 32.0  # a share of the operands may fit a nearer cache
    assert seconds(of, shared_by(16, scaling=0.7)) > times[-1]


def test_what_no_cache_holds_takes_as_long_as_all_channels_need() -> None:
    of = work(torch.relu, torch.rand(1 << 24))
    cores = replace(shared_by(64).cores, bytes_per_second=1e10, cache_bytes=1e6)  # type: ignore[type-var]
    cached = replace(cores, cache_bytes=1e9)
    share = 1e-4
    assert shared_seconds(of, Cut(64.0), share, 0.0, cores, 64) == pytest.approx(REGION + of.bytes / 1e10)
    assert shared_seconds(of, Cut(64.0), share, 0.0, cached, 64) == pytest.approx(REGION + share)


def test_a_copy_of_more_than_two_dimensions_is_shared() -> None:
    images = torch.rand(64, 4, 3, 5, 16, 32)
    assert cut_of(work(lambda x: x.permute(0, 2, 1, 3, 5, 4).contiguous(), images)).pieces > 1.0


def test_recurrent_layers_that_torch_runs_op_by_op_gain_from_two_cores() -> None:
    step = torch.rand(64, 32, 64)
    lstm, gru = (works(kind(64, 128).eval(), step)[-1] for kind in (nn.LSTM, nn.GRU))
    assert cut_of(gru).pieces == 2.0 < cut_of(lstm).pieces
    assert cut_of(lstm).regions == 64.0


def test_one_core_draws_the_numbers_of_a_dropout() -> None:
    heads = torch.rand(8, 8, 128, 32)
    plain, dropped = (
        work(lambda q, p=p: F.scaled_dot_product_attention(q, q, q, dropout_p=p), heads) for p in (0.0, 0.1)
    )
    assert cut_of(plain).serial == 0.0 < cut_of(dropped).serial
    gain = seconds(dropped, CORE) / seconds(dropped, shared_by(16))
    assert gain < 1.0 / cut_of(dropped).serial


#: Ops that are run with several threads, in a process of their own: what each is, and the threads made in each call.
COUNTED = """
import os, sys
import torch
import torch.nn.functional as F

torch.set_num_threads(int(sys.argv[1]))


def threads():
    return set(os.listdir("/proc/self/task"))


def made_by(run):
    for _ in range(3):
        run()
    new, before = 0, threads()
    for _ in range(5):
        run()
        now = threads()
        new, before = new + len(now - before), now
    return round(new / 5)


def depthwise():
    image, weight = (torch.rand(*shape, requires_grad=True) for shape in ((1, 64, 28, 28), (64, 1, 3, 3)))
    result = F.conv2d(image, weight, padding=1, groups=64)
    return lambda: torch.autograd.grad(result.sum(), [image, weight], retain_graph=True)


weight = torch.rand(16, 16, 3)
batches = {images: torch.rand(images, 16, 16) for images in (1, 2, 3, 8, 16)}
numbers = torch.rand(1 << 18)
with torch.no_grad():
    for batch in batches.values():
        print(made_by(lambda: F.conv1d(batch, weight)))
    print(made_by(lambda: numbers.exp()))
print(made_by(depthwise()))
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="this system does not list the threads of a process")
@pytest.mark.skipif("libgomp" not in loaded_libraries(), reason="torch runs its loops with another OpenMP than GNU's")
@pytest.mark.skipif("AVX512" not in torch.backends.cpu.get_cpu_capability(), reason="counted with AVX-512")
def test_small_convolutions_make_as_many_threads_as_is_priced() -> None:
    threads = 8
    printed = subprocess.run(
        [sys.executable, "-c", COUNTED, str(threads)], capture_output=True, text=True, check=True, timeout=120
    ).stdout
    weight = torch.rand(16, 16, 3)
    priced = [
        threads_made(cut_of(work(F.conv1d, torch.rand(images, 16, 16), weight)), threads) for images in (1, 2, 3, 8, 16)
    ]
    priced.append(threads_made(cut_of(work(torch.exp, torch.rand(1 << 18))), threads))
    image = torch.rand(1, 64, 28, 28, requires_grad=True)
    layer = nn.Conv2d(64, 64, 3, padding=1, groups=64)
    step = Workload(
        model=layer,
        modules=(layer,),
        args=(image,),
        kwargs={},
        mode="train",
        loss=None,
        optimizer=None,
        data="device",
    )
    backward = next(each for each in describe_step(trace(step)) if each.family == "convolution_backward")
    priced.append(threads_made(cut_of(backward), threads))
    assert [float(line) for line in printed.split()] == priced

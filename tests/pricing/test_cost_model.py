"""The price of an op: what physics allow, times what is learnt, times an offset of the device, and what it rests on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from described import spec, work
from priced import RATES, call, device, elementwise, family, matmul

from placer.errors import ProfileError
from placer.pricing import CostModel, Effort, Work, bounds, cpu_edition, cpu_network, start_share
from placer.pricing.cost_model import BEYOND
from placer.pricing.gpu import edition
from placer.pricing.physics import (
    CACHED,
    CYCLE,
    PRODUCT_RATE,
    STARTING,
    allows_tf32,
    arithmetic,
    cores_of,
    cpu_inputs,
    op_parts,
    peak,
    table_seconds,
)
from placer.pricing.prediction import SIGMA
from placer.pricing.shapes.shape import Place
from placer.profile import Device, FamilyFit, load, shipped
from placer.tracing.trace_data import Trace

# --- physics ------------------------------------------------------------------------------------------------------

GPU = replace(device(), device="cuda")
#: A step whose operands no core's cache holds.
LARGE = Place(1e9)


def test_the_longer_of_arithmetic_and_traffic_follows_the_start() -> None:
    product = matmul(1000)
    assert bounds(product, GPU) == pytest.approx((1e-6, 2e9 / 1e11, 1.2e7 / 1e10))
    assert bounds(product, GPU).seconds == pytest.approx(1e-6 + 2e9 / 1e11)
    assert bounds(replace(product, flops=1.0), GPU).seconds == pytest.approx(1e-6 + 1.2e7 / 1e10)
    assert bounds(matmul(1000, "bfloat16"), GPU).arithmetic == pytest.approx(2e9 / 2e11)
    update = work("optimizer::Adam", [spec(1000)], [], phase="optimizer")
    assert bounds(update, GPU).start == pytest.approx(7e-6)  # seven kernels over all tensors, of which it is one


def test_on_a_cpu_products_run_at_their_peak_and_all_else_at_a_cycle_a_flop() -> None:
    product, added = matmul(1000), elementwise("aten::add", 1e6, 1.2e7)
    cycle = RATES["dispatch_seconds"] / STARTING
    assert bounds(product, device()).arithmetic == pytest.approx(2e9 / 1e11)
    assert bounds(product, device(**{PRODUCT_RATE: 4e11})).arithmetic == pytest.approx(2e9 / 4e11)
    assert bounds(added, device()).arithmetic == pytest.approx(1e6 * cycle)
    assert bounds(added, device(**{PRODUCT_RATE: 4e11, CYCLE: 1e-9})).arithmetic == pytest.approx(1e6 * 1e-9)
    assert bounds(added, replace(device(), threads=4)).arithmetic == pytest.approx(1e6 * cycle / 4)


def test_operands_come_from_memory_or_from_the_caches_that_hold_them() -> None:
    near, far = (replace(elementwise("aten::add", 1e6, 1.2e7), place=place) for place in (Place(1e6), LARGE))
    cycle = RATES["dispatch_seconds"] / STARTING
    assert bounds(far, device()).memory == pytest.approx(1.2e7 / 1e10)
    assert bounds(near, device()).memory == pytest.approx(1.2e7 / (CACHED / cycle))
    fast = device(bytes_per_second=1e13)  # no cache is slower than memory
    assert bounds(near, fast).memory == bounds(far, fast).memory


def test_the_parts_of_an_op_add_up_and_follow_its_bounds() -> None:
    for each in (matmul(64), matmul(1000), replace(elementwise("aten::add", 1e6, 1.2e7), place=LARGE)):
        limits, parts = bounds(each, device()), op_parts(each, 1.0, device())
        assert sum(parts) == pytest.approx(1.0)
        assert parts.start == pytest.approx(limits.start / limits.seconds) == start_share(each, device())
        assert 0.0 in (parts.arithmetic, parts.memory)
        assert (parts.arithmetic > parts.memory) == (limits.arithmetic > limits.memory)


def test_cycles_of_the_table_are_shared_by_cores_unless_torch_shares_none() -> None:
    made = Effort(0.0, 0.0, cycles=1e6, kind="functions")
    loop = replace(elementwise("aten::mine", 1e6, 8e6), effort=made)
    one, four = device(), replace(device(), threads=4)
    cycle = RATES["dispatch_seconds"] / STARTING
    assert table_seconds(loop, one) == pytest.approx(1e-6 + 1e6 * cycle)
    assert table_seconds(loop, four) == pytest.approx(1e-6 + 1e6 * cycle / 4)
    assert table_seconds(replace(loop, effort=made._replace(shared=False)), four) == table_seconds(loop, one)
    own = device(**{f"{CYCLE}/functions": 2.0 * cycle})
    assert table_seconds(loop, own) == pytest.approx(1e-6 + 2e6 * cycle)
    moving = replace(loop, effort=made._replace(cycles=0.0), place=LARGE)
    assert table_seconds(moving, one) == pytest.approx(1e-6 + 8e6 / 1e10)
    assert [cores_of(replace(loop, bytes=8.0 * 32768 * n), 4) for n in (0.5, 2, 9)] == [1.0, 2.0, 4.0]


@pytest.fixture
def switches() -> Iterator[None]:
    """The process's switches for TF32 as torch has them, also afterwards."""

    def reset() -> None:
        if hasattr(torch.backends, "fp32_precision"):
            torch.backends.cudnn.conv.fp32_precision = torch.backends.cudnn.rnn.fp32_precision = "tf32"  # type: ignore
            torch.backends.cuda.matmul.fp32_precision = "none"
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = True

    reset()
    yield
    reset()


@pytest.mark.usefixtures("switches")
def test_what_multiplies_matrices_runs_at_the_rate_that_torch_allows() -> None:
    product, half = (
        work("aten::mm", [spec(64, 32, dtype=dtype), spec(32, 16, dtype=dtype)], [spec(64, 16, dtype=dtype)])
        for dtype in ("float32", "bfloat16")
    )
    image, depthwise = (
        work("aten::convolution", [spec(2, 8, 16, 16), spec(8, channels, 3, 3)], [spec(2, 8, 16, 16)])
        for channels in (8, 1)
    )
    added = work("aten::add", [spec(64, dtype="bfloat16")] * 2, [spec(64, dtype="bfloat16")])
    assert [arithmetic(each) for each in (product, image, depthwise)] == ["float32", "tf32", "float32"]
    assert (arithmetic(half), arithmetic(added)) == ("bfloat16", "float32")
    rates = {"flops/float32": 1e13, "flops/tf32": 8e13, "flops/bfloat16": 16e13, "bytes_per_second": 1e12}
    assert [peak(each, rates, cpu=False) for each in (product, half, image)] == [1e13, 16e13, 8e13]
    assert peak(image, rates) == 1e13  # a CPU has no TF32
    assert peak(image, {"flops/float32": 1e13}, cpu=False) == 1e13  # of a profile that knows no TF32
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = False
    assert [arithmetic(each) for each in (product, image, depthwise)] == ["tf32", "float32", "float32"]


@pytest.mark.usefixtures("switches")
@pytest.mark.skipif(not hasattr(torch.backends, "fp32_precision"), reason="this torch has one switch for each library")
def test_the_newer_switches_are_told_apart_where_torch_refuses_to_answer_the_older_ones() -> None:
    torch.backends.cudnn.rnn.fp32_precision = "ieee"  # type: ignore[attr-defined]
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    assert [allows_tf32(switch) for switch in ("matmul", "conv", "rnn")] == [True, True, False]  # type: ignore[arg-type]


# --- prices of a CPU ----------------------------------------------------------------------------------------------


def prices(fit: Device, *works: Work) -> list[float]:
    return CostModel(fit).price_works(works)[0]


def test_an_op_of_a_network_costs_physics_times_what_is_learnt_times_its_offset() -> None:
    works = [matmul(64), matmul(256), matmul(64, op="aten::bmm")]
    known = family("matmul", {"aten::mm": math.log(3.0), "": math.log(0.5)})
    network = cpu_network("matmul")
    assert network is not None
    fit = device({"matmul": known})
    physics, x = cpu_inputs(works, fit)
    learnt = network.learnt(x, [each.op for each in works], known.numbers)  # type: ignore[arg-type]
    times = (3.0, 3.0, 0.5)
    expected = [p * math.exp(each) * t for p, each, t in zip(physics, learnt, times, strict=True)]
    seconds, sigma, sources = CostModel(fit).price_works(works)
    assert seconds == pytest.approx(expected)
    assert sources == ["calibrated"] * 3
    assert sigma == pytest.approx([math.hypot(network.sigma_of(each.op)[0], known.sigma) for each in works])
    slower = device({"matmul": known.times(2.0)})
    assert prices(slower, *works) == pytest.approx([2.0 * each for each in seconds])
    assert CostModel(replace(fit, estimated=True)).price_works(works) == (seconds, sigma, ["published"] * 3)


def test_other_numbers_of_a_device_are_other_prices() -> None:
    known = family("matmul")
    moved = replace(known, numbers=(1.0, *known.numbers[1:]))
    first, second = (prices(device({"matmul": each}), matmul(256)) for each in (known, moved))
    assert first != pytest.approx(second, rel=1e-3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_op_in_a_layout_that_was_not_seen_costs_what_it_does_in_others(dtype: str) -> None:
    plain, rows, other = (matmul(64, dtype, op) for op in ("aten::mm", "aten::mm.rows", "aten::bmm"))
    label = "aten::mm" if dtype == "float32" else f"aten::mm:{dtype}"
    fit = device({"matmul": family("matmul", {label: 1.0})})
    seconds, _, sources = CostModel(fit).price_works([plain, rows, other])
    assert seconds[0] == seconds[1] != pytest.approx(seconds[2], rel=1e-3)
    assert sources == ["calibrated"] * 3


def test_a_shape_beyond_all_samples_is_less_sure() -> None:
    fit = device({"matmul": family("matmul")})
    seconds, sigma, sources = CostModel(fit).price_works([matmul(256), matmul(10**6)])
    assert sources == ["calibrated", "extrapolated"]
    assert sigma[1] == pytest.approx(math.hypot(sigma[0], BEYOND))
    assert 0.0 < seconds[0] < seconds[1] < math.inf


def test_what_no_network_knows_is_priced_by_the_table_of_ops_whatever_its_family_says() -> None:
    unknown = elementwise("aten::mine", 1e5, 8e5)
    in_table = replace(unknown, effort=Effort(1e5, 8e5, cycles=1e6, kind="functions"))
    known = {"elementwise": family("elementwise", {"": 1.0})}
    for fit in (device(), device(known)):
        seconds, sigma, sources = CostModel(fit).price_works([unknown, matmul(64), in_table])
        assert seconds == [bounds(unknown, fit).seconds, bounds(matmul(64), fit).seconds, table_seconds(in_table, fit)]
        assert sources == ["guess", "physics", "physics"]  # a product's family says all that it does
        assert sigma == [SIGMA["guess"], SIGMA["physics"], SIGMA["physics"]]
    assert math.exp(1.645 * SIGMA["guess"]) == pytest.approx(3.0)
    assert seconds[2] > seconds[0]


def test_ops_are_priced_alike_together_and_alone() -> None:
    works = [elementwise("aten::mine", 10.0, 80.0), matmul(64), elementwise("aten::add", 1e4, 1.2e5), matmul(256)]
    fit = device({name: family(name) for name in ("matmul", "elementwise")})
    together = CostModel(fit).price_works(works)
    alone = [CostModel(fit).price_works([each]) for each in works]
    assert together[0] == pytest.approx([seconds for (seconds,), _, _ in alone])
    assert (together[1], together[2]) == ([s for _, (s,), _ in alone], [source for _, _, (source,) in alone])
    assert CostModel(fit).price_works([]) == ([], [], [])


#: Ops of most families, ever larger ones: each does 4 times as much as the one before, or more.
SIZES = [2**n for n in range(4, 12)]
GROWING: dict[str, Sequence[Work]] = {
    "product": [matmul(n) for n in SIZES],
    "loop": [work("aten::add", [spec(n, n)] * 2, [spec(n, n)]) for n in SIZES],
    "function": [work("aten::tanh", [spec(n, n)], [spec(n, n)]) for n in SIZES],
    "reduction": [work("aten::sum", [spec(n, n)], [spec(n)], 1) for n in SIZES],
    "softmax": [work("aten::_softmax", [spec(n, n)], [spec(n, n)], -1, False) for n in SIZES],
    "norm": [work("aten::native_layer_norm", [spec(n, n), spec(n)], [spec(n, n)]) for n in SIZES],
    "convolution": [
        work(
            "aten::convolution",
            [spec(4, 8, n, n), spec(8, 8, 3, 3)],
            [spec(4, 8, n, n)],
            (1, 1),
            (1, 1),
            (1, 1),
            False,
            (0, 0),
            1,
        )
        for n in SIZES[:6]
    ],
    "table": [work("aten::kthvalue", [spec(n, n)], [spec(n)], 1, 1) for n in SIZES],
    "unknown": [work("mine::op", [spec(n, n)], [spec(n, n)]) for n in SIZES],
}


@pytest.mark.parametrize("name", GROWING)
def test_prices_are_positive_and_grow_with_what_an_op_does(name: str) -> None:
    """On every machine whose profile is shipped, but for a fifth: what is learnt of small ops is not monotonic."""
    for profile in shipped():
        for fit in load(profile, samples=False).fits:
            seconds = prices(fit, *GROWING[name])
            assert all(1e-8 < each < 1e3 for each in seconds), (profile, fit.threads)
            assert all(more > 0.8 * less for less, more in pairwise(seconds)), (profile, fit.threads, seconds)
            assert seconds[-1] > 10.0 * seconds[0], (profile, fit.threads)


def test_a_trace_is_priced_call_by_call() -> None:
    calls = (call("aten::mm", 64, 64, layer="a"), call("aten::add", 64, 64), call("aten::mm", 64, 64, layer="b"))
    trace = Trace(calls, "train", (), (), (), ())
    priced = CostModel(device()).price(trace)
    assert priced.trace is trace
    assert priced.families == ("matmul", "elementwise", "matmul")
    assert priced.seconds[0] == priced.seconds[2] != priced.seconds[1]
    assert (priced.host_seconds, priced.kernels) == ((0.0, 0.0, 0.0), ())


# --- prices of an accelerator -------------------------------------------------------------------------------------


def test_an_accelerator_without_a_name_costs_its_bounds_times_what_it_was_measured_at() -> None:
    learnt = FamilyFit((), {"aten::mm": math.log(2.0), "": math.log(3.0)}, 0.07, 9)
    works = [matmul(64), matmul(64, op="aten::bmm"), elementwise("aten::add", 1e4, 1.2e5)]
    plain, _, physics = CostModel(GPU).price_works(works)
    assert plain == pytest.approx([bounds(each, GPU).seconds for each in works])
    assert "calibrated" not in physics
    seconds, sigma, sources = CostModel(replace(GPU, families={"matmul": learnt})).price_works(works)
    assert seconds == pytest.approx([2.0 * plain[0], 3.0 * plain[1], plain[2]])
    assert sources == ["calibrated", *physics[1:]]  # only of an op that was measured here
    assert sigma == [learnt.sigma, *(SIGMA[source] for source in physics[1:])]


def test_a_gpu_of_the_catalog_costs_what_is_published_times_what_it_was_measured_at() -> None:
    t4 = replace(GPU, gpu="Tesla T4", edition=edition())
    learnt = FamilyFit((), {"aten::mm": math.log(2.0)}, 0.07, 9)
    works = [matmul(64), matmul(64, op="aten::bmm")]
    plain, doubts, rests = CostModel(t4).price_works(works)
    assert CostModel(t4).provenance == "published"
    model = CostModel(replace(t4, families={"matmul": learnt}))
    seconds, sigma, sources = model.price_works(works)
    assert seconds == pytest.approx([2.0 * plain[0], plain[1]])
    assert (sigma, sources) == ([learnt.sigma, doubts[1]], ["calibrated", rests[1]])
    assert rests[1] != "calibrated"
    assert model.provenance == "calibrated"


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["dispatch_seconds", "flops/float32", "bytes_per_second"])
def test_a_fit_without_physics_is_refused(missing: str) -> None:
    for rates in ({k: v for k, v in RATES.items() if k != missing}, {**RATES, missing: 0.0}):
        with pytest.raises(ProfileError, match=rf"cannot predict on cpu: it has no {missing}; run: placer calibrate"):
            CostModel(replace(device(), rates=rates))


ONE = family("matmul")
T4 = replace(GPU, gpu="Tesla T4", families={"matmul": FamilyFit((), {"aten::mm": 0.1}, 0.1, 9)}, edition=edition())


@pytest.mark.parametrize(
    ("fit", "changes", "named"),
    [
        (device({"matmul": ONE}), {"edition": cpu_edition() + 1}, "cpu"),
        (device({"matmul": ONE}), {"edition": 0}, "cpu"),
        (device({"matmul": ONE}), {"families": {"matmul": replace(ONE, numbers=(*ONE.numbers, 0.0))}}, "cpu"),
        (device({"matmul": ONE}), {"families": {"matmul": replace(ONE, numbers=())}}, "cpu"),
        (T4, {"edition": edition() + 1}, "Tesla T4"),
        (T4, {"edition": 0}, "Tesla T4"),
    ],
)
def test_numbers_of_other_networks_are_refused(fit: Device, changes: dict[str, Any], named: str) -> None:
    CostModel(fit)
    with pytest.raises(ProfileError, match=rf"other knowledge of {named} .*; run: placer calibrate$"):
        CostModel(replace(fit, **changes))
    CostModel(replace(fit, families={}, edition=0))  # without families nothing depends on networks


# --- what several threads, and the system's memory, add to an op of a CPU ---------------------------------------------


@pytest.mark.parametrize(("rows", "times"), [(512, 0.9), (4096, 2.5)])
def test_threads_that_add_where_an_index_says_do_so_one_by_one_from_a_grain_on(rows: int, times: float) -> None:
    """An EPYC of Zen 5 takes 2.4 ns for each of 884,000 numbers on two threads, 0.5 on one; without adding, 0.2."""
    table, index, values = spec(4096, 32), spec(rows, dtype="int64"), spec(rows, 32)
    added = work("aten::index_put_", [table, index, values], [table], True, in_place=True)
    put = work("aten::index_put_", [table, index, values], [table], in_place=True)
    assert added.suffix == "accumulate"
    one, two = (CostModel(load("amd-epyc-avx512-2-core").fit("cpu", threads)) for threads in (1, 2))
    seconds = {of: model.price_works([added, put])[0] for of, model in (("one", one), ("two", two))}
    assert seconds["two"][0] / seconds["two"][1] > times
    assert seconds["one"][0] / seconds["one"][1] < 2.0


def test_results_too_large_to_keep_memory_for_wait_for_the_system() -> None:
    """From 32 MB on glibc maps each anew. A copy of 33 MB takes 8 times as long as one of 30 (Zen 5, two threads)."""
    model = CostModel(load("amd-epyc-avx512-2-core").fit("cpu", 2))

    def relu(megabytes: float, **facts: bool) -> float:
        numbers = spec(int(megabytes * 2**18))
        return model.price_works([work("aten::relu_" if facts else "aten::relu", [numbers], [numbers], **facts)])[0][0]

    assert relu(33.0) > 2.0 * relu(31.0)
    assert relu(66.0) == pytest.approx(2.0 * relu(33.0), rel=0.01)
    assert relu(33.0, in_place=True) < 1.3 * relu(31.0, in_place=True)


def test_the_less_sure_a_draw_the_more_often_a_core_guesses_wrong() -> None:
    """With 0.05, 0.1, 0.2 and 0.5 a drawn number takes 3.7, 4.4, 5.7 and 9.6 ns (Zen 5)."""
    model, numbers = CostModel(load("amd-epyc-avx512-2-core").fit("cpu", 2)), spec(1 << 20)
    calls = [work("aten::dropout", [numbers], [numbers], p) for p in (0.05, 0.1, 0.2, 0.5, 0.8)]
    rare, usual, more, even, common = model.price_works(calls)[0]
    assert rare == pytest.approx(usual)  # all that is known was learnt with 0.1
    assert usual < more < even
    assert common == pytest.approx(more)
    assert even - usual == pytest.approx(4.0 * (more - usual))
    assert (even - usual) / numbers.numel == pytest.approx(9.6e-9 - 4.4e-9, rel=0.1)

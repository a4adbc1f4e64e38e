"""The price of an op: what physics allow, times what is learnt, times an offset of the device, and what it rests on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from described import spec, work
from priced import RATES, device, elementwise, family, matmul

from placer.errors import ProfileError
from placer.pricing import CostModel, Work
from placer.pricing.cost_model import BEYOND
from placer.pricing.gpu import edition
from placer.pricing.networks import cpu_edition
from placer.pricing.ops import Effort
from placer.pricing.physics import (
    bounds,
    table_seconds,
)
from placer.pricing.prediction import SIGMA
from placer.profile import Device, FamilyFit, load, shipped

# --- physics ------------------------------------------------------------------------------------------------------

GPU = replace(device(), device="cuda")


# --- prices of a CPU ----------------------------------------------------------------------------------------------


def prices(fit: Device, *works: Work) -> list[float]:
    return CostModel(fit).price_works(works)[0]


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


# --- prices of an accelerator -------------------------------------------------------------------------------------


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

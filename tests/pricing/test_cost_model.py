"""The price of an op: what physics allow, times what is learnt, times an offset of the device, and what it rests on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from described import spec, work
from priced import RATES, device, family, matmul

from placer.errors import ProfileError
from placer.pricing import CostModel, Work
from placer.pricing.gpu import edition
from placer.pricing.networks import cpu_edition
from placer.profile import Device, FamilyFit, load, shipped

GPU = replace(device(), device="cuda")

# --- prices of a CPU ----------------------------------------------------------------------------------------------

#: Ops of most families, ever larger ones: each does 4 times as much as the one before, or more.
SIZES = [2**n for n in range(4, 12)]
#: Arguments of a convolution: stride, padding, dilation, transposed, output padding, groups.
PADDED = (1, 1), (1, 1), (1, 1), False, (0, 0), 1
GROWING: dict[str, Sequence[Work]] = {
    "product": [matmul(n) for n in SIZES],
    "loop": [work("aten::add", [spec(n, n)] * 2, [spec(n, n)]) for n in SIZES],
    "function": [work("aten::tanh", [spec(n, n)], [spec(n, n)]) for n in SIZES],
    "reduction": [work("aten::sum", [spec(n, n)], [spec(n)], 1) for n in SIZES],
    "softmax": [work("aten::_softmax", [spec(n, n)], [spec(n, n)], -1, False) for n in SIZES],
    "norm": [work("aten::native_layer_norm", [spec(n, n), spec(n)], [spec(n, n)]) for n in SIZES],
    "convolution": [
        work("aten::convolution", [spec(4, 8, n, n), spec(8, 8, 3, 3)], [spec(4, 8, n, n)], *PADDED) for n in SIZES[:6]
    ],
    "table": [work("aten::kthvalue", [spec(n, n)], [spec(n)], 1, 1) for n in SIZES],
    "unknown": [work("mine::op", [spec(n, n)], [spec(n, n)]) for n in SIZES],
}


@pytest.mark.parametrize("name", GROWING)
def test_prices_are_positive_and_grow_with_what_an_op_does(name: str) -> None:
    """On every machine whose profile is shipped, but for a fifth: what is learnt of small ops is not monotonic."""
    for profile in shipped():
        for fit in load(profile).fits:
            seconds, _, _ = CostModel(fit).price_works(GROWING[name])
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

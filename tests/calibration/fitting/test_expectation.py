"""What another machine's fit says of an op, and its ops recovered from their regression inputs."""

from __future__ import annotations

import math
import pickle
from pathlib import Path

import pytest

from placer import profile
from placer.calibration.fitting.transfer import Expectation, work_at
from placer.pricing.describe import CONTEXT_FLAGS, CONTEXT_SIZES, inputs_of, op_label
from placer.pricing.families import FAMILIES
from placer.pricing.floors import ARITHMETIC_BY_FLOOR
from placer.pricing.work import SUFFIX, Work
from placer.profile.profile import DeviceFit

from .made_up import RATES

RECORD = Path(__file__).parents[3] / "calibration" / "records" / "cpu-2-core" / "profile.json"


def test_costs_of_another_machine_are_brought_to_this_ones_rates(reference: DeviceFit) -> None:
    rates = {"dispatch_seconds": 1e-6, "flops/float32": 4 * RATES["flops/float32"], "bytes_per_second": 2e10}
    there = reference.families["elementwise"].parameters
    here = Expectation(reference).costs("elementwise", rates, math.log(3.0))
    assert here["flops@aten::add"] == pytest.approx(there["flops@aten::add"] / 4)
    assert here["bytes"] == pytest.approx(there["bytes"] / 2)
    assert here["latency@aten::exp"] == pytest.approx(3 * there["latency@aten::exp"])
    assert ARITHMETIC_BY_FLOOR not in here


def test_one_family_sent_to_another_process_prices_as_before(reference: DeviceFit) -> None:
    whole = Expectation(reference, same_class=True, name="a machine")
    part = pickle.loads(pickle.dumps(whole.of_family("matmul")))
    assert (list(part.families), part.same_class, part.name) == (["matmul"], True, "a machine")
    works = part.points("matmul")
    assert works == whole.points("matmul")
    assert part.log_seconds(works).tolist() == whole.log_seconds(works).tolist()


def test_an_op_is_recovered_from_its_regression_inputs() -> None:
    found = profile.load(RECORD)
    for family, fit in found.fit("cpu", 2).families.items():
        for row, op in list(zip(fit.x.tolist(), fit.op_index, strict=True))[:20]:
            work = work_at(family, fit.ops[op], row)
            assert inputs_of(work) == pytest.approx(row, abs=1e-6)
            assert op_label(work) == fit.ops[op]


def test_sizes_are_recovered_to_the_last_register() -> None:
    sizes = tuple(float(16 * n) for n in range(1, 1 + len(FAMILIES["matmul"].sizes) + len(CONTEXT_SIZES)))
    work = Work("matmul", "aten::mm", "float32", 3.0, 7.0, sizes, (0.0,) * len(FAMILIES["matmul"].flags))
    assert work_at("matmul", op_label(work), inputs_of(work)).sizes == sizes


def test_a_variant_is_recovered_from_its_sizes() -> None:
    family = FAMILIES["convolution"]
    sizes = (8.0, 1.0, 1.0, 64.0, 9.0, *[100.0] * (len(family.sizes) + len(CONTEXT_SIZES) - 5))
    work = Work("convolution", "aten::convolution", "bfloat16", 3.0, 7.0, sizes, (0.0,) * len(family.flags))
    recovered = work_at("convolution", op_label(work), inputs_of(work))
    assert op_label(work) == "aten::convolution/depthwise:bfloat16"
    assert (recovered.op, recovered.dtype, op_label(recovered)) == (work.op, work.dtype, op_label(work))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_layout_is_recovered_from_its_label(dtype: str) -> None:
    sizes = tuple(float(2**i) for i in range(len(FAMILIES["normalization"].sizes) + len(CONTEXT_SIZES)))
    flags = (0.0,) * (len(FAMILIES["normalization"].flags) + len(CONTEXT_FLAGS))
    work = Work("normalization", f"aten::native_batch_norm{SUFFIX}rows", dtype, 3.0, 7.0, sizes, flags)
    recovered = work_at("normalization", op_label(work), inputs_of(work))
    assert (recovered.op, recovered.dtype) == (work.op, work.dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_names_and_dtypes_are_told_apart(dtype: str) -> None:
    sizes = tuple(float(2**i) for i in range(len(FAMILIES["optimizer"].sizes) + len(CONTEXT_SIZES)))
    work = Work("optimizer", "optimizer::Adam", dtype, 3.0, 7.0, sizes, (0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0))
    recovered = work_at("optimizer", op_label(work), inputs_of(work))
    assert (recovered.op, recovered.dtype, recovered.flags) == (work.op, work.dtype, work.flags)
    assert recovered.sizes == pytest.approx(work.sizes)

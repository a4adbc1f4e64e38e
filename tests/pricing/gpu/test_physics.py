"""The time that physics allows a row, and the inputs of the learnt part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from placer.pricing.gpu.physics import L2_BYTES_PER_CLOCK, L2_SHARE, inputs, rate
from placer.pricing.gpu.rows import COLUMNS
from placer.profile import DataSheet, find_gpu, gpus

DTYPES = ("float32", "tf32", "float16", "bfloat16", "float64")
#: FLOPs and bytes from next to nothing to a large op's.
AMOUNTS = ((0.0, 4.0), (1.0, 4.0), (1e6, 1e6), (1e10, 1e6), (1e6, 1e9), (1e13, 1e10))


def rows(kind: str) -> np.ndarray:
    """Rows of all amounts: sizes of 0 (an empty batch), 1, 48 and 4096, flags set and not."""
    found = []
    for size, flag in ((0.0, 0.0), (1.0, 0.0), (48.0, 1.0), (4096.0, 0.0)):
        flags = {"channels_last", "to_input", "to_weight", "dilated", "one_d", "three_d", "causal", "masked", "dropout",
                 "backward", "strided", "broadcast", "flag", "a_transposed", "b_transposed"}  # fmt: skip
        rest = [flag if name in flags else size for name in COLUMNS[kind][2:]]
        found += [[flops, moved, *rest] for flops, moved in AMOUNTS]
    return np.array(found)


@pytest.mark.parametrize("kind", COLUMNS)
def test_inputs_are_finite_for_every_gpu(kind: str) -> None:
    columns, widths = rows(kind), set()
    for sheet in gpus().values():
        for dtype in DTYPES:
            seconds, x = inputs(kind, columns, dtype, sheet)
            assert np.isfinite(x).all(), (sheet.name, dtype)
            assert np.isfinite(seconds).all(), (sheet.name, dtype)
            assert (seconds > 0.0).all(), (sheet.name, dtype)
            widths.add(x.shape[1])
    assert len(widths) == 1


@pytest.mark.parametrize("kind", COLUMNS)
def test_nothing_is_faster_than_the_data_sheet(kind: str) -> None:
    columns = rows(kind)
    flops, moved = columns[:, 0], columns[:, 1]
    for sheet in gpus().values():
        peaks = {
            "float32": max(sheet.float32_tflops, sheet.matrix_float32_tflops),
            "tf32": max(sheet.float32_tflops, sheet.matrix_float32_tflops, sheet.tensor_tf32_tflops),
            "float16": max(sheet.float32_tflops, sheet.matrix_float32_tflops, sheet.tensor_float16_tflops),
            "bfloat16": max(sheet.float32_tflops, sheet.matrix_float32_tflops, sheet.tensor_bfloat16_tflops),
            "float64": max(sheet.float64_tflops, sheet.float32_tflops / 64.0),
        }
        l2 = (sheet.l2_mb + sheet.last_level_cache_mb) * 1e6
        for dtype, peak in peaks.items():
            seconds, _ = inputs(kind, columns, dtype, sheet)
            assert (seconds >= 0.999 * flops / (peak * 1e12)).all(), (sheet.name, dtype)
            beyond_l2 = moved > 20.0 * L2_SHARE * max(l2, 1e5)
            fastest = 1.01 * sheet.bandwidth_gbps * 1e9
            assert (seconds[beyond_l2] >= moved[beyond_l2] / fastest).all(), (sheet.name, dtype)


def test_what_fits_in_l2_is_read_from_there() -> None:
    sheet = find_gpu("A100")
    columns = np.zeros((2, len(COLUMNS["memory"])))
    columns[:, 1] = 1e6, 1e9
    columns[:, 2:5] = 1.0
    small, large = inputs("memory", columns, "float32", sheet)[0]
    from_l2 = sheet.sms * sheet.boost_mhz * 1e6 * L2_BYTES_PER_CLOCK
    assert small == pytest.approx(1e6 / from_l2, rel=0.05)
    assert large == pytest.approx(1e9 / (sheet.bandwidth_gbps * 1e9), rel=0.05)


def test_rates_of_a_t4_are_held_by_its_power_limit() -> None:
    t4 = find_gpu("T4")
    assert 0.35 < rate(t4, "float32", tensor=False) / (t4.float32_tflops * 1e12) < 0.5
    assert 0.4 < rate(t4, "float16", tensor=True) / (t4.tensor_float16_tflops * 1e12) < 0.65
    # Without a limit, the best kernels come near to the peak.
    assert rate(replace(t4, watts=1e6), "float16", tensor=True) == pytest.approx(0.97e12 * t4.tensor_float16_tflops)


def test_a_higher_limit_is_never_slower() -> None:
    for sheet in gpus().values():
        more = replace(sheet, watts=1.5 * sheet.watts)
        for dtype in DTYPES:
            tensor = dtype in ("tf32", "float16", "bfloat16")
            assert rate(more, dtype, tensor=tensor) >= rate(sheet, dtype, tensor=tensor) > 0.0


@pytest.mark.parametrize("name", ["A100", "H100", "B200"])
def test_tensor_cores(name: str) -> None:
    sheet = find_gpu(name)
    plain = rate(sheet, "float32", tensor=False)
    assert rate(sheet, "tf32", tensor=True) > 1.2 * plain
    assert rate(sheet, "bfloat16", tensor=True) > 1.2 * rate(sheet, "tf32", tensor=True)
    assert rate(sheet, "float16", tensor=True) == pytest.approx(rate(sheet, "bfloat16", tensor=True))


def test_of_geforce_cards_tensor_cores_multiply_float32_no_faster() -> None:
    for name in ("RTX 3090", "RTX 4090"):
        sheet = find_gpu(name)
        assert rate(sheet, "tf32", tensor=True) == rate(sheet, "float32", tensor=False)
        assert rate(sheet, "float16", tensor=True) > 2.0 * rate(sheet, "tf32", tensor=True)


def test_half_precision_without_tensor_cores_is_as_fast_as_float32() -> None:
    for name in ("P100", "GTX 1080 Ti"):
        sheet = find_gpu(name)
        assert rate(sheet, "float16", tensor=True) == rate(sheet, "float32", tensor=False)
    assert rate(find_gpu("T4"), "tf32", tensor=True) == rate(find_gpu("T4"), "float32", tensor=False)


def test_float64_has_its_own_rate_and_no_limit() -> None:
    for name in ("A100", "RTX 4090"):
        sheet = find_gpu(name)
        assert rate(sheet, "float64", tensor=False) == pytest.approx(sheet.float64_tflops * 1e12, rel=1e-3)
    unsaid = replace(find_gpu("RTX 4090"), float64_tflops=0.0)
    assert rate(unsaid, "float64", tensor=False) == pytest.approx(unsaid.float32_tflops * 1e12 / 64.0)


def test_matrix_cores_of_amd_multiply_float32() -> None:
    mi210 = find_gpu("MI210")
    assert mi210.matrix_float32_tflops > mi210.float32_tflops
    assert rate(mi210, "float32", tensor=False, matrix=True) > rate(mi210, "float32", tensor=False)


def seconds_of(kind: str, dtype: str, sheet: DataSheet) -> float:
    columns = np.array([[1e12, 1e6, *(64.0,) * (len(COLUMNS[kind]) - 2)]])
    return float(inputs(kind, columns, dtype, sheet)[0][0])


def test_tensor_cores_multiply_and_do_nothing_else() -> None:
    sheet = find_gpu("A100")
    for kind in ("product", "convolution", "attention", "recurrent"):
        assert seconds_of(kind, "float16", sheet) < 0.3 * seconds_of(kind, "float32", sheet), kind
    for kind in ("memory", "depthwise"):
        assert seconds_of(kind, "float16", sheet) == seconds_of(kind, "float32", sheet), kind

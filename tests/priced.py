"""Hand-made fits to price by."""

from __future__ import annotations

from collections.abc import Mapping

from placer.pricing.describe import fitted_features
from placer.pricing.shapes import Loop, Product
from placer.pricing.work import Place, Work, inputs_of, op_label
from placer.profile.profile import DeviceFit, FamilyFit
from placer.tracing.trace_data import OpCall, TensorSpec

RATES = {"dispatch_seconds": 1e-6, "flops/float32": 1e11, "flops/bfloat16": 2e11, "bytes_per_second": 1e10}


def matmul(n: int, dtype: str = "float32", op: str = "aten::mm") -> Work:
    """The product of two squares."""
    return product(n, n, n, dtype, op)


def product(
    m: float, n: float, k: float, dtype: str = "float32", op: str = "aten::mm", *, item_bytes: int = 4
) -> Work:
    """One product of contiguous matrices, of which none counts as a row, a column or ragged."""
    shape = Product(
        1, m, n, k, m * k, k * n, m * n, min(m, n, k), a_transposed=False, b_transposed=False, row=False, column=False,
        ragged=False,
    )  # fmt: skip
    return Work("matmul", op, dtype, shape.flops, item_bytes * (m * k + k * n + m * n), shape, Place(1e6))


def elementwise(op: str, numel: float, moved: float) -> Work:
    """A loop over contiguous elements, all in one, of a FLOP each."""
    loop = Loop(numel, moved, numel, numel, strided=False, broadcast=False, in_place=False)
    return Work("elementwise", op, "float32", numel, moved, loop, Place(1e6))


def device(families: Mapping[str, FamilyFit] | None = None, **rates: float) -> DeviceFit:
    return DeviceFit("cpu", 1, {**RATES, **rates}, families or {}, {}, {})


def family(works: list[Work], residuals: list[float], parameters: Mapping[str, float]) -> FamilyFit:
    rows = [inputs_of(work) for work in works]
    ops = tuple(sorted({op_label(work) for work in works}))
    return FamilyFit(
        feature_names=fitted_features("matmul"), ops=ops, x=tuple(rows),
        op_index=tuple(ops.index(op_label(work)) for work in works), y=tuple(residuals),
        point_noise=(1e-6,) * len(works), length_scales=(8.0,) * len(rows[0]), op_scale=1.0, mean=0.0, signal=1.0,
        noise=1e-6, parameters=parameters, measured=len(works),
    )  # fmt: skip


FLAT = {"latency": 2e-6, "flops": 5e-11, "bytes": 1e-10}


def call(op: str, *shape: int, phase: str = "forward", layer: str = "") -> OpCall:
    spec = TensorSpec(shape, (shape[-1], 1), "float32")
    return OpCall(op, (spec, spec), (spec,), phase=phase, layer=layer)  # type: ignore[arg-type]

"""Hand-made fits to price by."""

from __future__ import annotations

from collections.abc import Mapping

from placer.pricing.describe import feature_names, inputs_of, op_label
from placer.pricing.work import Work
from placer.profile.profile import DeviceFit, FamilyFit
from placer.tracing.trace_data import OpCall, TensorSpec

RATES = {"dispatch_seconds": 1e-6, "flops/float32": 1e11, "flops/bfloat16": 2e11, "bytes_per_second": 1e10}


def matmul(n: int, dtype: str = "float32", op: str = "aten::mm") -> Work:
    sizes = (1, n, n, n, n * n, n * n, n * n, n, 1e6, 1, 0, 0)
    return Work("matmul", op, dtype, 2.0 * n**3, 12.0 * n * n, sizes, (0,) * 10)


def device(families: Mapping[str, FamilyFit] | None = None, **rates: float) -> DeviceFit:
    return DeviceFit("cpu", 1, {**RATES, **rates}, families or {}, {}, {})


def family(works: list[Work], residuals: list[float], parameters: Mapping[str, float]) -> FamilyFit:
    rows = [inputs_of(work) for work in works]
    ops = tuple(sorted({op_label(work) for work in works}))
    return FamilyFit(
        feature_names=("flops", "bytes", *feature_names("matmul")), ops=ops, x=tuple(rows),
        op_index=tuple(ops.index(op_label(work)) for work in works), y=tuple(residuals),
        point_noise=(1e-6,) * len(works), length_scales=(8.0,) * len(rows[0]), op_scale=1.0, mean=0.0, signal=1.0,
        noise=1e-6, parameters=parameters, measured=len(works),
    )  # fmt: skip


FLAT = {"latency": 2e-6, "flops": 5e-11, "bytes": 1e-10}


def call(op: str, *shape: int, phase: str = "forward", layer: str = "") -> OpCall:
    spec = TensorSpec(shape, (shape[-1], 1), "float32")
    return OpCall(op, (spec, spec), (spec,), phase=phase, layer=layer)  # type: ignore[arg-type]

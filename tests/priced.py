"""Hand-made fits to price by."""

from __future__ import annotations

from collections.abc import Mapping

from placer.pricing.networks import cpu_edition, cpu_network
from placer.pricing.shapes.loops import Loop
from placer.pricing.shapes.products import Product
from placer.pricing.shapes.shape import Place, Work
from placer.profile.profile import Device, FamilyFit
from placer.tracing.trace_data import OpCall, TensorSpec

RATES = {"dispatch_seconds": 1e-6, "flops/float32": 1e11, "flops/bfloat16": 2e11, "bytes_per_second": 1e10}


def matmul(n: int, dtype: str = "float32", op: str = "aten::mm") -> Work:
    """The product of two squares."""
    return product(n, n, n, dtype, op)


def product(m: float, n: float, k: float, dtype: str = "float32", op: str = "aten::mm", *, item_bytes: int = 4) -> Work:
    """One product of contiguous matrices, of which none counts as a row, a column or ragged."""
    shape = Product(
        1,
        m,
        n,
        k,
        m * k,
        k * n,
        m * n,
        min(m, n, k),
        a_transposed=False,
        b_transposed=False,
        row=False,
        column=False,
        ragged=False,
    )
    moved = item_bytes * (m * k + k * n + m * n)
    return Work("matmul", op, dtype, shape.flops, moved, shape, Place(1e6, previous=moved))


def elementwise(op: str, numel: float, moved: float) -> Work:
    """A loop over contiguous elements, all in one, of a FLOP each."""
    loop = Loop(numel, moved, numel, numel, strided=False, broadcast=False, in_place=False)
    return Work("elementwise", op, "float32", numel, moved, loop, Place(1e6, previous=moved))


def device(families: Mapping[str, FamilyFit] | None = None, **rates: float) -> Device:
    """One thread of a CPU, by its rates, and what is learnt of its families."""
    return Device("cpu", 1, {**RATES, **rates}, families or {}, {}, {}, edition=cpu_edition())


def family(name: str, offsets: Mapping[str, float] | None = None, sigma: float = 0.1) -> FamilyFit:
    """What is learnt of a family on a CPU whose numbers are those in the middle, with the offsets of some ops."""
    network = cpu_network(name)
    assert network is not None
    return FamilyFit((0.0,) * network.device_numbers, offsets or {}, sigma, len(offsets or {}))


def call(op: str, *shape: int, phase: str = "forward", layer: str = "") -> OpCall:
    spec = TensorSpec(shape, (shape[-1], 1), "float32")
    return OpCall(op, (spec, spec), (spec,), phase=phase, layer=layer)  # type: ignore[arg-type]

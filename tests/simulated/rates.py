"""How fast the device computes, by op and dtype, as torch's switches stand."""

from __future__ import annotations

import torch

from simulated.spec import Spec

PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward"})


def rate(spec: Spec, op: str, dtype: torch.dtype) -> float:
    """FLOP/s. Narrow dtypes and TF32 are for products and convolutions."""
    if dtype == torch.float64:
        return spec.flops_float64
    if op not in PRODUCTS:
        return spec.flops
    if dtype == torch.bfloat16:
        return spec.flops_bfloat16 or spec.flops
    if dtype == torch.float16:
        return spec.flops_float16 or spec.flops
    return spec.flops_tf32 if spec.flops_tf32 and _tf32(op) else spec.flops


def _tf32(op: str) -> bool:
    """Whether torch allows TF32 for this op: as it comes, for convolutions only."""
    if op.startswith("convolution"):
        current, legacy = getattr(torch.backends.cudnn, "conv", None), torch.backends.cudnn
    else:
        current, legacy = torch.backends.cuda.matmul, torch.backends.cuda.matmul
    precision = getattr(current, "fp32_precision", None)
    return precision == "tf32" if precision is not None else bool(legacy.allow_tf32)

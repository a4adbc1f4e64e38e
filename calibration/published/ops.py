"""Published operator times -> samples: the op calls that ran, the GPU, and the seconds they took."""

from __future__ import annotations

import csv
import gzip
import json
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placer.errors import PlacerError
from placer.tracing import OpCall, TensorSpec

#: Share of rows taken of sources that are far larger than the others, of one op.
_THINNED = {("aiconfigurator", "linear"): 0.15, ("aiconfigurator", "scaled_dot_product_attention"): 0.15,
            ("vidur", "linear"): 0.4, ("vidur", "scaled_dot_product_attention"): 0.5}  # fmt: skip
#: Sources that are left out, with the reason.
LEFT_OUT = {
    "cdecatapult": "TensorFlow 1, whose own overhead of 0.1 to 0.4 ms is inside",
    "zebra-uestc/llaisys": "no licence, and the GPU is inferred",
    "liger-kernel": "times contain the flush of L2, the making of gradients and composites",
    "llmcompass": "times contain the launch and a wait; norms are compiled",
}
#: GPUs whose name in the data does not say the variant, and the catalog's name of the one that fits.
GPUS = {
    "NVIDIA A100 80GB (vidur; PCIe or SXM not stated)": "NVIDIA A100 80GB PCIe",
    "NVIDIA H100 80GB (vidur; SXM or NVL not stated)": "NVIDIA H100 80GB HBM3",
    "NVIDIA H100 (LLMServingSim; variant not stated)": "NVIDIA H100 80GB HBM3",
    "Tesla V100 (DeepBench, DGX-1 SXM2)": "Tesla V100-SXM2-16GB",
    "Tesla P100 (DeepBench)": "Tesla P100-PCIE-16GB",
    "Tesla V100-DGXS-32GB": "Tesla V100-SXM2-16GB",
    "NVIDIA GeForce GTX TITAN X (Maxwell)": "NVIDIA GeForce GTX TITAN X",
}
#: Elementwise ops of the data: the name of the op, and that of its gradient where it launches a kernel.
_ELEMENTWISE = {
    "add": ("add", None), "sub": ("sub", None), "mul": ("mul", "mul"), "div": ("div", "div"), "pow": ("pow", None),
    "maximum": ("maximum", None), "where": ("where", "where"), "relu": ("relu", "threshold_backward"),
    "gelu": ("gelu", "gelu_backward"), "tanh": ("tanh", "tanh_backward"),
    "masked_fill": ("masked_fill", "masked_fill"), "dropout": ("dropout", "dropout_backward"),
}  # fmt: skip


@dataclass(frozen=True)
class PublishedOp:
    """One published time. ``seconds`` are those of ``calls`` together; ``part`` names one half of a gradient.

    ``includes_host`` says that a Python call, its dispatch and a launch on an idle stream are inside.
    """

    source: str
    gpu: str
    op: str
    phase: str
    calls: tuple[OpCall, ...]
    seconds: float
    includes_host: bool
    part: str = ""


def read_ops(data: Path, seed: int = 0) -> tuple[list[PublishedOp], Counter[str]]:
    """The samples of ``ops.csv.gz`` in ``data``, and how many rows were left out, by reason."""
    path = data / "ops.csv.gz"
    if not path.is_file():
        raise PlacerError(f"no published op times at {path}; give the folder that holds ops.csv.gz")
    chosen = random.Random(seed)
    left_out: Counter[str] = Counter()
    found: list[PublishedOp] = []
    with gzip.open(path, "rt", newline="") as file:
        for row in csv.DictReader(file):
            reason = LEFT_OUT.get(row["source"]) or _suspect(row)
            if reason is None and chosen.random() > _THINNED.get((row["source"], row["op"]), 1.0):
                reason = "thinned: a share of a very large source is enough"
            calls = () if reason else _calls(row["op"], row["phase"], row["dtype"], json.loads(row["shapes"]))
            if not calls:
                left_out[reason or f"no kernel, or none of PyTorch's own: {row['op']} {row['phase']}"] += 1
                continue
            part = json.loads(row["shapes"]).get("grad", "") if row["phase"] == "bwd" else ""
            found.append(PublishedOp(
                row["source"], GPUS.get(row["gpu"], row["gpu"]), row["op"], row["phase"], calls,
                float(row["microseconds"]) * 1e-6, row["what"] == "op", part,
            ))  # fmt: skip
    return found, left_out


def _suspect(row: dict[str, str]) -> str | None:
    if row["source"] == "neusight-train" and row["gpu"] == "Tesla P4" and row["op"] == "linear":
        return "throttled: linear on Tesla P4 (the collection's own flag)"
    if row["dtype"] not in ("float32", "float16", "bfloat16", "float64"):
        return f"not floating point: {row['dtype']}"
    if "emb" in row["op"] and "mask" in row["notes"]:
        return "embedding with the mask kernels of tensor parallelism inside"
    if row["source"] == "neusight-label" and row["op"] == "embedding":
        return "every token is the same one: the table is one row in cache, and gradients collide"
    if row["source"] == "neusight-label" and row["op"] == "dropout" and row["phase"] == "bwd":
        return "gradient of dropout through a chain of ops: 3.8 times the traffic of PyTorch's one kernel"
    if row["source"] == "vidur" and "two adds" in row["notes"]:
        return "two ops timed together"
    return None


def _spec(shape: Sequence[int], dtype: str, *, transposed: bool = False) -> TensorSpec:
    strides: list[int] = []
    each = 1
    for size in reversed(shape):
        strides.insert(0, each)
        each *= max(size, 1)
    if transposed:
        strides[-2:] = 1, shape[-2]
    return TensorSpec(tuple(shape), tuple(strides), dtype)


def _calls(op: str, phase: str, dtype: str, shapes: dict[str, Any]) -> tuple[OpCall, ...]:
    """The op calls behind a row; none for what PyTorch does not launch as such."""
    if phase == "fwd+bwd":
        return ()
    made = _MAKERS.get(op) or (_elementwise if op in _ELEMENTWISE else None)
    return tuple(made(op, phase == "bwd", dtype, shapes)) if made else ()


def _mm(dtype: str, m: int, k: int, n: int, *, ta: bool = False, tb: bool = False, batch: int = 1) -> OpCall:
    lead = (batch,) if batch > 1 else ()
    a = _spec((*lead, m, k), dtype, transposed=ta and not lead)
    b = _spec((*lead, k, n), dtype, transposed=tb and not lead)
    if lead and tb:
        b = TensorSpec(b.shape, (k * n, 1, k), dtype)
    return OpCall("aten::bmm" if lead else "aten::mm", (a, b), (_spec((*lead, m, n), dtype),))


def _linear(op: str, backward: bool, dtype: str, s: dict[str, Any]) -> Iterator[OpCall]:
    if op == "linear":
        (out, k), rows = s["w"], math.prod(s["in"][0][:-1])
        bias = bool(s.get("bias"))
    else:
        (rows, k), out, bias = s["in"][1], s["in"][2][1], True
    if backward:
        yield _mm(dtype, rows, out, k)
        yield _mm(dtype, out, rows, k, ta=True)
        if bias:
            yield OpCall("aten::sum", (_spec((rows, out), dtype),), (_spec((1, out), dtype),))
    elif bias:
        product = _mm(dtype, rows, k, out, tb=op == "linear")
        yield OpCall("aten::addmm", (_spec((out,), dtype), *product.inputs), product.outputs)
    else:
        yield _mm(dtype, rows, k, out, tb=True)


def _matmul(op: str, backward: bool, dtype: str, s: dict[str, Any]) -> Iterator[OpCall]:
    a, b = s["in"]
    batch = math.prod(a[:-2])
    m, k, n = a[-2], a[-1], b[-1]
    if len(b) == 2:
        m, batch = m * batch, 1
    if backward:
        yield _mm(dtype, m, n, k, tb=True, batch=batch)
        yield _mm(dtype, k, m, n, ta=True, batch=batch)
    else:
        yield _mm(dtype, m, k, n, ta=bool(s.get("ta")), tb=bool(s.get("tb")), batch=batch)


def _elementwise(op: str, backward: bool, dtype: str, s: dict[str, Any]) -> Iterator[OpCall]:
    name = _ELEMENTWISE[op][backward]
    if name is None:
        return
    operands = [_spec(shape, dtype) for shape in s["in"]]
    shape = [max(sizes) for sizes in zip(*(_padded(t, s["in"]) for t in s["in"]), strict=True)]
    out = _spec(shape, dtype)
    if backward:
        two = op in ("mul", "div") and len(operands) > 1
        for _ in range(2 if two else 1):
            yield OpCall(f"aten::{name}", (out, out) if name.endswith("backward") or two else (out,), (out,))
        return
    if op in ("where", "masked_fill"):
        operands.insert(0, _spec(s["in"][0], "bool"))
    if op in ("maximum",) and len(operands) == 1:
        operands.append(_spec((), dtype))
    outputs = (out, _spec(shape, "bool")) if op == "dropout" else (out,)
    yield OpCall(f"aten::{name}", tuple(operands), outputs)


def _padded(shape: Sequence[int], shapes: Sequence[Sequence[int]]) -> list[int]:
    rank = max(map(len, shapes))
    return [*(1,) * (rank - len(shape)), *shape]


def _softmax(op: str, backward: bool, dtype: str, s: dict[str, Any]) -> Iterator[OpCall]:
    x = _spec(s["in"][0], dtype)
    yield OpCall("aten::_softmax_backward_data" if backward else "aten::_softmax", (x, x) if backward else (x,), (x,))


def _layer_norm(op: str, backward: bool, dtype: str, s: dict[str, Any]) -> Iterator[OpCall]:
    x, w = _spec(s["in"][0], dtype), _spec(s["norm"], dtype)
    rows = _spec((*s["in"][0][:-1], 1), dtype)
    if backward:
        yield OpCall("aten::native_layer_norm_backward", (x, x, rows, rows, w, w), (x, w, w))
    else:
        yield OpCall("aten::native_layer_norm", (x, w, w), (x, rows, rows))


def _batch_norm(op: str, backward: bool, dtype: str, s: dict[str, Any]) -> Iterator[OpCall]:
    x = _spec(s["in"][0], dtype)
    c = _spec((s["in"][0][1],), dtype)
    if backward:
        yield OpCall("aten::native_batch_norm_backward", (x, x, c, c, c, c, c), (x, c, c), (True, 1e-5))
    else:
        yield OpCall("aten::native_batch_norm", (x, c, c, c, c), (x, c, c), (bool(s.get("train")), 0.1, 1e-5))


def _conv2d(op: str, backward: bool, dtype: str, s: dict[str, Any]) -> Iterator[OpCall]:
    (n, _, h, w), weight = s["in"][0], s["w"]
    (sh, sw), (ph, pw) = s["stride"], s["pad"]
    out = (n, weight[0], (h + 2 * ph - weight[2]) // sh + 1, (w + 2 * pw - weight[3]) // sw + 1)
    if min(out) < 1:
        return
    image, kernel, result = _spec(s["in"][0], dtype), _spec(weight, dtype), _spec(out, dtype)
    args = ((sh, sw), (ph, pw), (1, 1), False, (0, 0), s.get("groups", 1))
    if backward:
        yield OpCall("aten::convolution_backward", (result, image, kernel), (image, kernel), args)
    else:
        yield OpCall("aten::convolution", (image, kernel), (result,), args)


def _pool(op: str, backward: bool, dtype: str, s: dict[str, Any]) -> Iterator[OpCall]:
    n, c, h, w = s["in"][0]
    if op == "max_pool2d":
        sizes = [(x + 2 * p - k) // st + 1 for x, p, k, st in zip((h, w), s["pad"], s["k"], s["stride"], strict=True)]
        name, more = "max_pool2d_with_indices", [_spec((n, c, *sizes), "int64")]
    else:
        sizes, name, more = list(s["out"]), "_adaptive_avg_pool2d", []
    image, pooled = _spec((n, c, h, w), dtype), _spec((n, c, *sizes), dtype)
    if backward:
        yield OpCall(f"aten::{name}_backward", (pooled, image, *more), (image,))
    else:
        yield OpCall(f"aten::{name}", (image,), (pooled, *more))


def _embedding(op: str, backward: bool, dtype: str, s: dict[str, Any]) -> Iterator[OpCall]:
    rows, width = s["w"]
    index, out = _spec(s["idx"], "int64"), _spec((*s["idx"], width), dtype)
    table = _spec((rows or 32000, width), dtype)
    if backward:
        yield OpCall("aten::embedding_dense_backward", (out, index), (table,))
    else:
        yield OpCall("aten::embedding", (table, index), (out,))


def _attention(op: str, backward: bool, dtype: str, s: dict[str, Any]) -> Iterator[OpCall]:
    q, kv = _spec(s["q"], dtype), _spec(s["kv"], dtype)
    yield OpCall("aten::scaled_dot_product_attention", (q, kv, kv), (q,), (bool(s.get("causal")),))


def _copy(op: str, backward: bool, dtype: str, s: dict[str, Any]) -> Iterator[OpCall]:
    shape = s["in"][0]
    plain = _spec(shape, dtype)
    if s.get("noncontig") and len(shape) > 2:
        strides = list(plain.stride)
        strides[-2], strides[-3] = strides[-3], strides[-2]
        plain = TensorSpec(plain.shape, (*plain.stride[:-3], shape[-1], shape[-3] * shape[-1], 1), dtype)
    yield OpCall("aten::clone", (plain,), (_spec(shape, dtype),))


def _recurrent(op: str, backward: bool, dtype: str, s: dict[str, Any]) -> Iterator[OpCall]:
    gates = {"lstm": 4, "gru": 3}.get(op, 1)
    layers = s["layers"] * s["dirs"]
    x = _spec((s["T"], s["N"], s["I"]), dtype)
    from_input = _spec((0 if s["input_mode"] == "skip" else gates * s["H"], s["I"]), dtype)
    weights = (from_input, _spec((gates * s["H"], s["H"]), dtype)) * layers
    name = f"aten::{op}_backward" if backward else f"aten::{op}"
    yield OpCall(name, (x, *weights), (_spec((s["T"], s["N"], s["H"]), dtype),), (s["T"],))


def _cross_entropy(op: str, backward: bool, dtype: str, s: dict[str, Any]) -> Iterator[OpCall]:
    x = _spec(s["in"][0], dtype)
    yield OpCall("aten::_log_softmax", (x,), (x,))


_MAKERS = {
    "linear": _linear, "addmm": _linear, "mm": _matmul, "bmm": _matmul, "matmul": _matmul, "softmax": _softmax,
    "layer_norm": _layer_norm, "batch_norm": _batch_norm, "conv2d": _conv2d, "max_pool2d": _pool,
    "adaptive_avg_pool2d": _pool, "embedding": _embedding, "scaled_dot_product_attention": _attention, "copy": _copy,
    "lstm": _recurrent, "gru": _recurrent, "rnn_relu": _recurrent, "cross_entropy": _cross_entropy,
}  # fmt: skip

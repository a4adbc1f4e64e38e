"""What ops take on the GPU of an Apple chip through torch's MPS backend, which has no CUDA, cuBLAS or cuDNN.

    seconds = graph + kernels x gap + max(arithmetic / (share x peak), bytes / (share x bandwidth))

torch encodes each op into a command buffer: by a kernel of its own in some microseconds, or as a graph that Apple's
MPSGraph finds in a cache and encodes, in some tens. The buffer is committed when it holds 64 MB of operands, or when
the host waits (``MPSStream.mm``), which takes some tenths of a millisecond whatever the op: so an op whose result is
wanted at once takes 0.1 to 0.4 ms, and one inside a step far less. ``FITTED`` comes from published times of isolated
ops on chips from M1 to M4: ``python -m placer.calibration.published.mps DIR``.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Mapping, Sequence

from placer.pricing.families.parameter_updates import KNOWN, foreach, looped
from placer.pricing.families.products import time_steps
from placer.pricing.floors import has_physics
from placer.pricing.gpu.physics import COLUMNS, Row, rows_of
from placer.pricing.prediction import SIGMA, SOURCES, Provenance, Source, weakest
from placer.pricing.timeline import HOST_TIME_STEP
from placer.pricing.work import Work, op_of
from placer.profile import PUBLISHED_MPS, DataSheet
from placer.tracing import Trace

#: Fitted: seconds to commit a command buffer and wait for it on an M1's host, shares of the memory's bandwidth, shares
#: of the float32 peak, elements for each GPU core and clock.
FITTED: Mapping[str, float] = {
    "wait": 2.33e-4,
    "share/elementwise": 0.751, "share/cat": 0.868, "share/reduction": 0.821, "share/arg": 0.235,
    "share/softmax": 0.609, "share/normalization": 0.828, "share/convolution": 0.509, "peak/product": 0.804,
    "peak/convolution": 0.519, "elements/indexing": 0.152, "elements/scatter": 0.101, "elements/sorting": 1.46,
}  # fmt: skip
#: Seconds of the same work on a chip's CPU over those on an M1: Geekbench 6, one core (2,350, 2,600, 3,100, 3,800 and
#: 4,200 points).
_HOST = {"M1": 1.0, "M2": 0.90, "M3": 0.76, "M4": 0.62, "M5": 0.56}
#: Seconds between kernels that follow each other: 3.0 us on an M1 Max (pytorch#82707), 2.4 to 2.75 us on an M3 Ultra
#: (ml-explore/mlx#4521), 3 to 6 us with torch's own kernels on an M1 Pro (pytorch#148219).
GAP = 3e-6
#: What a graph takes on the device besides, on an M1's host. Graphs of one product follow each other after 39 us on an
#: M4 (JuliaGPU/Metal.jl#872); those of torch hold several ops, and alone take 0.11 ms there by the published rows.
_AROUND_GRAPH = 1e-4
#: Seconds to issue a kernel of torch's own and a graph, on an M1: 1.2 to 1.4 us, and 20 us for a graph of one simple op
#: (an M1 Pro, pytorch#148219); convolutions and norms of ResNet-50 take 70 us each with Python and autograd (an M3).
_KERNEL, _GRAPH, _LARGE_GRAPH = 3e-6, 20e-6, 90e-6
#: Seconds of a time step of a layer. A GRU and a plain RNN are some ten ops for each: 51 to 67 us on an M1
#: (pytorch#192727), all of it to issue them. An LSTM is one graph, as the GRU of that pull request is: 14 to 21 us of
#: the device.
_GRU, _RNN, _LSTM = 60e-6, 30e-6, 15e-6
#: A gradient of a recurrent layer over the layer.
_BACKWARD = 2.0
#: Families that torch runs as a graph, and those it has kernels of its own for, in torch 2.6 to 2.14.
_AS_GRAPH = frozenset((
    "reduction", "softmax", "matmul", "convolution", "convolution_backward", "normalization", "pooling", "attention",
    "encoder", "recurrent", "linear_algebra", "fourier", "sorting", "quantized", "other",
))  # fmt: skip
_LARGE = frozenset(("convolution", "convolution_backward", "normalization", "encoder"))
#: The families of published rows, and their ops that keep a rate of their own.
_HAS_ROWS = frozenset((
    "elementwise", "reduction", "softmax", "matmul", "convolution", "attention", "indexing", "normalization", "sorting",
))  # fmt: skip
_ARG = frozenset(("argmax", "argmin", "max", "min", "aminmax"))
#: Shares of the bandwidth and of the peak that are assumed where no op of a family was published.
_OTHER_SHARE, _OTHER_PEAK = 0.5, 0.1
#: Standard deviation of log(seconds) of what was published, of other ops, dtypes and chips; of rows kept apart.
_SIGMA: dict[Source, float] = {"published": 0.5, "learnt": 0.65}
#: Of what a step takes besides: versions of torch and macOS differ more than the chips do.
STEP_SIGMA = 0.3
#: Rows and columns of a product's tiles, and how many of them fill a GPU core.
_TILE, _TILES = 32.0, 4.0
#: The least share of the cores that a product with few tiles has at work: its depth is split.
_LEAST_CORES = 0.1
#: Kernels of attention, which is written out as products and a softmax, and bytes that they move for each score.
_ATTENTION, _SCORES = 6.0, 24.0

#: Ops without a kernel for MPS in torch 2.13: what its own tests expect to fail (``UNIMPLEMENTED_XFAILLIST`` in
#: torch/testing/_internal/common_mps.py) for any dtype.
_LACKING = """
    _adaptive_avg_pool3d _adaptive_avg_pool3d_backward _ctc_loss _ctc_loss_backward _linalg_eigh _pdist_backward
    _pdist_forward _segment_reduce_backward adaptive_max_pool3d adaptive_max_pool3d_backward fractional_max_pool2d
    fractional_max_pool3d frexp geqrf hash_tensor heaviside linalg_eig linalg_eigvals linalg_ldl_factor_ex
    linalg_ldl_solve linalg_lstsq linalg_matrix_exp logspace mode multi_margin_loss ormqr put rrelu_with_noise
    segment_reduce special_airy_ai special_laguerre_polynomial_l special_legendre_polynomial_p special_log_ndtr
    special_ndtri take
"""
LACKING = frozenset(f"aten::{name}" for name in _LACKING.split())
#: Ops that run on the CPU whatever is set (``MPSFallback.mm``).
ON_CPU = frozenset(f"aten::{name}" for name in ("embedding_renorm", "_linalg_svd", "linalg_svd", "col2im"))
#: FLOP/s of those on the CPU, most of which follow from each other.
_FALLBACK_FLOPS = 2e10


#: What lies between the ops where no CPU was calibrated: the coefficients that calibrated servers have in common.
USUAL_FRAMEWORK = {
    "step": 2e-6, "python_call": 0.4e-6, "training_step": 20e-6, "autograd_node": 2.4e-6, "backward_op": 0.5e-6,
    "op_reuse_distance_100_ops": 0.4e-6,
}  # fmt: skip


def missing_op(trace: Trace) -> str | None:
    """An op of a step that raises NotImplementedError on MPS; None where this process lets the CPU run those."""
    if os.environ.get("PYTORCH_ENABLE_MPS_FALLBACK", "0") not in ("", "0"):
        return None
    return next((call.op for call in trace.calls if call.op.rstrip("_") in LACKING), None)


def host_factor(sheet: DataSheet) -> float:
    """Seconds of the same work on the chip's CPU over those on an M1."""
    return _HOST.get(sheet.chip[:2], min(_HOST.values()))


def mps_host(sheet: DataSheet) -> tuple[dict[str, float], dict[str, float]]:
    """(rates, what each op's issue takes) of MPS, in seconds and bytes per second: its host is the chip's own CPU."""
    scale = host_factor(sheet)
    issue = dict.fromkeys(_AS_GRAPH, _GRAPH) | dict.fromkeys(_LARGE, _LARGE_GRAPH)
    issue |= {"elementwise": _KERNEL, "random": _KERNEL, "indexing": _KERNEL, "view": 1e-6, "optimizer": 8.0 * _KERNEL}
    for name in KNOWN:  # one op after the other for each tensor: torch has no lists of tensors on MPS
        issue[name] = _KERNEL * looped(name)
        issue[f"{name}.fused"] = _KERNEL
    framework = {f"host/{name}": scale * seconds for name, seconds in issue.items()}
    for kind, seconds in (("gru", _GRU), ("rnn_tanh", _RNN), ("rnn_relu", _RNN)):
        for end, factor in (("", 1.0), ("_backward", _BACKWARD)):
            framework[f"{HOST_TIME_STEP}/aten::{kind}{end}"] = scale * factor * seconds
            framework[f"host/aten::{kind}_cell{end}"] = scale * factor * seconds
    wait, bandwidth = scale * FITTED["wait"], FITTED["share/elementwise"] * sheet.bandwidth_gbps * 1e9
    rates = {"launch_seconds": 5e-6, "sync_seconds": wait, "issue_seconds": scale * _KERNEL}
    for way in ("h2d", "d2h"):  # within one memory; what is not pinned is copied into a buffer and waited for
        for memory, start in (("pageable", wait), ("pinned", scale * _KERNEL)):
            rates[f"copy/{way}/{memory}/seconds_per_tensor"] = start
            rates[f"copy/{way}/{memory}/bytes_per_second"] = 0.5 * bandwidth
    return rates, {**framework, "host": scale * _KERNEL}


class AppleModel:
    """Prices the kernels of ops on the GPU of one Apple chip."""

    def __init__(self, sheet: DataSheet, fitted: Mapping[str, float] = FITTED) -> None:
        self.sheet, self._fitted = sheet, fitted
        self.edition = float(zlib.crc32(repr(sorted(fitted.items())).encode()))
        self._bandwidth, self._peak = sheet.bandwidth_gbps * 1e9, sheet.float32_tflops * 1e12
        self._clock = sheet.sms * sheet.boost_mhz * 1e6

    @property
    def provenance(self) -> Provenance:
        """``published`` of the generations that others measured."""
        return "published" if self.sheet.architecture in PUBLISHED_MPS else "data sheet"

    def price(self, works: Sequence[Work]) -> tuple[list[float], list[float], list[Source]]:
        """Seconds, standard deviation of log(seconds) and source of each work."""
        seconds, sigma = [0.0] * len(works), [0.0] * len(works)
        sources: list[Source] = [SOURCES[0]] * len(works)
        for i, work in enumerate(works):
            rows = rows_of(work)
            if not rows:
                continue
            seconds[i] = self.seconds(work, rows)
            sources[i] = weakest([self.source(work, row) for row in rows])
            sigma[i] = _SIGMA.get(sources[i]) or SIGMA[sources[i]]
        return seconds, sigma, sources

    def source(self, work: Work, row: Row) -> Source:
        """What the price of a row rests on: rows are of forward ops in float32."""
        if work.family in _HAS_ROWS and op_of(work.op) not in LACKING | ON_CPU:
            same = row.dtype == "float32" and self.provenance == "published" and "backward" not in work.op
            return "published" if same else "learnt"
        return "physics" if has_physics(work) else "guess"

    def seconds(self, work: Work, rows: Sequence[Row]) -> float:
        """Seconds of an op's kernels on the device, or of what the CPU runs in its place."""
        scale, fitted = host_factor(self.sheet), self._fitted
        if op_of(work.op) in LACKING | ON_CPU:  # copied there and back, each time waited for
            there_and_back = 2.0 * (scale * fitted["wait"] + work.bytes / self._bandwidth)
            return there_and_back + sum(row.columns[0] for row in rows) / _FALLBACK_FLOPS
        start = scale * _AROUND_GRAPH if work.family in _AS_GRAPH or "scatter_reduce" in work.op else 0.0
        return start + sum(self._row_seconds(work, row) for row in rows)

    def _row_seconds(self, work: Work, row: Row) -> float:
        of = dict(zip(COLUMNS[row.kind], row.columns, strict=True))
        flops, fitted, peak = of["flops"], self._fitted, self._peak_of(row)
        if row.kind == "product":
            tiles = of["batch"] * math.ceil(of["m"] / _TILE) * math.ceil(of["n"] / _TILE)
            at_work = min(max(tiles / (_TILES * self.sheet.sms), _LEAST_CORES), 1.0)
            return GAP + self._longer(flops / at_work, fitted["peak/product"] * peak, of["bytes"], "elementwise")
        if row.kind == "convolution":
            padded = flops * _padded(of["n"])
            return GAP + self._longer(padded, fitted["peak/convolution"] * peak, of["bytes"], "convolution")
        if row.kind == "attention":
            moved = of["bytes"] + _SCORES * of["batch"] * of["length"] * of["source"]
            return _ATTENTION * GAP + self._longer(flops, fitted["peak/product"] * peak, moved, "softmax")
        if row.kind == "recurrent":
            graph = "lstm" in work.op
            each = _LSTM * (_BACKWARD if work.flags[0] else 1.0) if graph else 10.0 * GAP
            return time_steps(work) * each + flops / (fitted["peak/product"] * peak)
        return self._memory_seconds(work, row.kind, of, peak)

    def _memory_seconds(self, work: Work, kind: str, of: Mapping[str, float], peak: float) -> float:
        name = op_of(work.op).removeprefix("aten::").rstrip("_")
        if work.family == "indexing":
            rate = self._fitted["elements/scatter" if "scatter" in name or "backward" in name else "elements/indexing"]
            return GAP + of["numel"] / (rate * self._clock) + work.bytes / self._bandwidth
        if work.family == "sorting" and "sort" in name:
            stages = math.log2(max(of["second"], 2.0)) ** 2
            return GAP + of["numel"] * stages / (self._fitted["elements/sorting"] * self._clock)
        if work.family == "optimizer":
            return self._update_seconds(work)
        share = "cat" if name in ("cat", "stack") else "arg" if name in _ARG else work.family
        if work.family in _HAS_ROWS or kind == "depthwise":
            moved, rate = work.bytes, _OTHER_PEAK * peak * 2.5
        else:
            moved, rate = of["bytes"], _OTHER_PEAK * peak
        return GAP * of["kernels"] + self._longer(of["flops"], rate, moved, share)

    def _update_seconds(self, work: Work) -> float:
        momentum, weight_decay, fused = (bool(flag) for flag in work.flags[:3])
        name = op_of(work.op)
        _, passes = foreach(name, momentum=momentum, weight_decay=weight_decay)
        kernels, moved = (1.0, work.bytes) if fused else (float(looped(name)), passes * work.bytes)
        return kernels * GAP + moved / (self._fitted["share/elementwise"] * self._bandwidth)

    def _longer(self, flops: float, rate: float, moved: float, share: str) -> float:
        """Seconds of arithmetic or of memory traffic, whichever is longer."""
        reached = self._fitted.get(f"share/{share}", _OTHER_SHARE)
        return max(flops / rate, moved / (reached * self._bandwidth))

    def _peak_of(self, row: Row) -> float:
        """FLOP/s of a dtype. Half precision runs as float32 does, but for an M5's products, and bfloat16 on an M1.

        An M1 Pro reaches 2.3 TFLOP/s in bfloat16 and 4.3 in float32 (zzc0721/torch-performance-test-data#191).
        """
        if row.dtype == "bfloat16" and self.sheet.architecture == "apple7":
            return 0.5 * self._peak
        fast = {"float16": self.sheet.tensor_float16_tflops, "bfloat16": self.sheet.tensor_bfloat16_tflops}
        return max(self._peak, fast.get(row.dtype, 0.0) * 1e12 if row.kind != "memory" else 0.0)


def _padded(size: float) -> float:
    """Times by which the last tile of a dimension makes it longer."""
    return math.ceil(size / _TILE) * _TILE / max(size, 1.0)

"""What ops take on the GPU of an Apple chip through torch's MPS backend, which has no CUDA, cuBLAS or cuDNN.

    seconds = graph + kernels x gap + max(arithmetic / (share x peak), bytes / (share x bandwidth))

torch encodes each op into a command buffer: by a kernel of its own in some microseconds, or as a graph that Apple's
MPSGraph finds in a cache and encodes, in some tens. The buffer is committed when it holds 64 MB of operands, or when
the host waits (``MPSStream.mm``), which takes some tenths of a millisecond whatever the op: so an op whose result is
wanted at once takes 0.1 to 0.4 ms, and one inside a step far less. ``FITTED`` comes from published times of isolated
ops on chips from M1 to M4, by least squares of log(seconds); ``placer validate --machines`` says how far off they are.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Mapping, Sequence

from placer.pricing.framework import HOST_TIME_STEP
from placer.pricing.gpu.physics import COLUMNS, Row, rows_of
from placer.pricing.ops import row_of, rows_of_family, updates
from placer.pricing.physics import has_physics
from placer.pricing.prediction import SIGMA, SOURCES, Provenance, Source, weakest
from placer.pricing.shapes import FAMILIES
from placer.pricing.shapes.layers import Recurrent
from placer.pricing.shapes.loops import OrderedRows, Rows
from placer.pricing.shapes.moves import Update
from placer.pricing.shapes.shape import Work
from placer.profile import PUBLISHED_MPS, DataSheet
from placer.tracing import Trace

#: Fitted: seconds to commit a command buffer and wait for it on an M1's host, shares of the memory's bandwidth by type
#: of shape or by what the table says, shares of the float32 peak, elements for each GPU core and clock.
FITTED: Mapping[str, float] = {
    "wait": 2.33e-4,
    "share/Loop": 0.751, "share/cat": 0.868, "share/Reduction": 0.821, "share/arg": 0.235,
    "share/Rows": 0.609, "share/Normalization": 0.828, "share/Convolution": 0.509, "peak/product": 0.804,
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
_GRU, _RNN, _FUSED_STEP = 60e-6, 30e-6, 15e-6
#: A gradient of a recurrent layer over the layer.
_BACKWARD = 2.0
#: Seconds to issue an op by how torch runs its family, in torch 2.6 to 2.14.
_ISSUE = {
    "kernel": _KERNEL, "graph": _GRAPH, "large graph": _LARGE_GRAPH, "updates": 8.0 * _KERNEL, "view": 1e-6,
}  # fmt: skip
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
#: Kernels of attention, which is written out as products and exponentials, and bytes that they move for each score.
_ATTENTION, _SCORES = 6.0, 24.0

#: What the table says of ops without a kernel for MPS in torch 2.13, which its own tests expect to fail
#: (``UNIMPLEMENTED_XFAILLIST`` in torch/testing/_internal/common_mps.py) for any dtype, and of those that run on the
#: CPU whatever is set (``MPSFallback.mm``).
LACKING, ON_CPU = "lacking", "cpu"
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
    return next((call.op for call in trace.calls if row_of(call.op).mps == LACKING), None)


def host_factor(sheet: DataSheet) -> float:
    """Seconds of the same work on the chip's CPU over those on an M1."""
    return _HOST.get(sheet.chip[:2], min(_HOST.values()))


def mps_host(sheet: DataSheet) -> tuple[dict[str, float], dict[str, float]]:
    """(rates, what each op's issue takes) of MPS, in seconds and bytes per second: its host is the chip's own CPU."""
    scale = host_factor(sheet)
    issue = {name: _ISSUE[family.mps] for name, family in FAMILIES.items()}
    for update in updates():  # one op after the other for each tensor: torch has no lists of tensors on MPS
        issue[update.op] = _KERNEL * float(update.kernels)
        issue[f"{update.op}.fused"] = _KERNEL
    framework = {f"host/{name}": scale * seconds for name, seconds in issue.items()}
    for row in rows_of_family("recurrent"):
        if "onednn" not in row.traits:
            seconds = (_RNN if "plain" in row.traits else _GRU) * (_BACKWARD if row.backward else 1.0)
            what = "host" if "cell" in row.traits else HOST_TIME_STEP
            framework[f"{what}/aten::{row.op}"] = scale * seconds
    wait, bandwidth = scale * FITTED["wait"], FITTED["share/Loop"] * sheet.bandwidth_gbps * 1e9
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
        if FAMILIES[work.family].mps_rows and work.row.mps not in (LACKING, ON_CPU):
            same = row.dtype == "float32" and self.provenance == "published" and "backward" not in work.op
            return "published" if same else "learnt"
        return "physics" if has_physics(work) else "guess"

    def seconds(self, work: Work, rows: Sequence[Row]) -> float:
        """Seconds of an op's kernels on the device, or of what the CPU runs in its place."""
        scale, fitted = host_factor(self.sheet), self._fitted
        if work.row.mps in (LACKING, ON_CPU):  # copied there and back, each time waited for
            there_and_back = 2.0 * (scale * fitted["wait"] + work.bytes / self._bandwidth)
            return there_and_back + sum(row.columns[0] for row in rows) / _FALLBACK_FLOPS
        as_graph = "graph" in FAMILIES[work.family].mps or "graph" in work.row.mps
        return scale * _AROUND_GRAPH * as_graph + sum(self._row_seconds(work, row) for row in rows)

    def _row_seconds(self, work: Work, row: Row) -> float:
        of = dict(zip(COLUMNS[row.kind], row.columns, strict=True))
        flops, fitted, peak = of["flops"], self._fitted, self._peak_of(row)
        if row.kind == "product":
            tiles = of["batch"] * math.ceil(of["m"] / _TILE) * math.ceil(of["n"] / _TILE)
            at_work = min(max(tiles / (_TILES * self.sheet.sms), _LEAST_CORES), 1.0)
            return GAP + self._longer(flops / at_work, fitted["peak/product"] * peak, of["bytes"], "Loop")
        if row.kind == "convolution":
            padded = flops * _padded(of["n"])
            return GAP + self._longer(padded, fitted["peak/convolution"] * peak, of["bytes"], "Convolution")
        if row.kind == "attention":
            moved = of["bytes"] + _SCORES * of["batch"] * of["length"] * of["source"]
            return _ATTENTION * GAP + self._longer(flops, fitted["peak/product"] * peak, moved, Rows.__name__)
        if isinstance(work.shape, Recurrent):
            as_one = "onednn" in work.row.traits
            time_step = _FUSED_STEP * (_BACKWARD if work.shape.backward else 1.0) if as_one else 10.0 * GAP
            return work.shape.steps * time_step + flops / (fitted["peak/product"] * peak)
        return self._memory_seconds(work, row.kind, of, peak)

    def _memory_seconds(self, work: Work, kind: str, of: Mapping[str, float], peak: float) -> float:
        how = work.row.mps
        if work.family == "indexing":
            rate = self._fitted["elements/scatter" if "scatter" in how else "elements/indexing"]
            return GAP + of["numel"] / (rate * self._clock) + work.bytes / self._bandwidth
        if isinstance(work.shape, OrderedRows) and how == "stages":
            stages = math.log2(max(of["second"], 2.0)) ** 2
            return GAP + of["numel"] * stages / (self._fitted["elements/sorting"] * self._clock)
        if isinstance(work.shape, Update):
            return self._update_seconds(work, work.shape)
        share = how if how in ("cat", "arg") else type(work.shape).__name__
        if FAMILIES[work.family].mps_rows or kind == "depthwise":
            moved, rate = work.bytes, _OTHER_PEAK * peak * 2.5
        else:
            moved, rate = of["bytes"], _OTHER_PEAK * peak
        return GAP * of["kernels"] + self._longer(of["flops"], rate, moved, share)

    def _update_seconds(self, work: Work, shape: Update) -> float:
        _, longer = shape.listed(work.row)
        kernels, moved = (1.0, work.bytes) if shape.fused else (float(work.row.kernels), longer * work.bytes)
        return kernels * GAP + moved / (self._fitted["share/Loop"] * self._bandwidth)

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

"""A GPU of the catalog -> a profile of it, as if a machine with the present host had that GPU.

The host's share: Python, the dispatcher and autograd are the same code whatever the device, so what they take between
the ops is what calibration measured on this CPU. Issuing an op to a GPU adds its checks, the caching allocator,
descriptors of cuBLAS or cuDNN, and a launch for each kernel. Profiler traces show these; what the profiler itself adds
is taken off.
"""

from __future__ import annotations

from placer.pricing.framework import HOST_DOUBT, ISSUE_RATIO, LEARNT
from placer.pricing.gpu import apple
from placer.pricing.gpu.device_model import device_model
from placer.pricing.gpu.physics import LAUNCH
from placer.pricing.timeline import HOST_KERNEL
from placer.profile import SCHEMA, DataSheet, DeviceFit, Profile, find_gpu

#: Bytes per second of pinned and of pageable memory over 16 lanes, by generation of PCIe. Pinned: bandwidthTest on
#: P100 and V100 (3), A100 (4), an unnamed PCIe 5 GPU. Pageable: traces of V100 (7 to 11 GB/s), A100 (6) and H100
#: (11 to 18).
_PCIE = {1: (3e9, 2.5e9), 2: (6e9, 4e9), 3: (12e9, 6.5e9), 4: (25e9, 8e9), 5: (46e9, 13e9), 6: (80e9, 14e9)}
#: The same of a chip-to-chip link, where the sheet names no PCIe, and of memory that host and GPU share.
_LINK, _SHARED = (200e9, 30e9), (60e9, 40e9)
#: Seconds to begin a copy: pageable (staged, and the host waits) to the GPU and from it, pinned, and in shared memory.
_PAGEABLE_IN, _PAGEABLE_OUT, _PINNED, _SHARED_START = 75e-6, 20e-6, 7e-6, 10e-6
_LANES = 16.0


def copy_rates(sheet: DataSheet) -> dict[str, float]:
    """The rates ``copy/<direction>/<memory>/...`` of a GPU, in seconds and bytes per second."""
    if sheet.integrated:
        pinned, pageable = _SHARED
    elif sheet.pcie_gen:
        pinned, pageable = _PCIE[min(max(sheet.pcie_gen, 1), 6)]
        share = min((sheet.pcie_lanes or _LANES) / _LANES, 1.0)
        pinned, pageable = pinned * share, min(pageable, pinned * share)
    else:
        pinned, pageable = _LINK
    starts = {
        "h2d": (_SHARED_START if sheet.integrated else _PAGEABLE_IN, _PINNED),
        "d2h": (_SHARED_START if sheet.integrated else _PAGEABLE_OUT, _PINNED),
    }
    rates = {}
    for direction, (slow, fast) in starts.items():
        for memory, start, bandwidth in (("pageable", slow, pageable), ("pinned", fast, pinned)):
            rates[f"copy/{direction}/{memory}/seconds_per_tensor"] = start
            rates[f"copy/{direction}/{memory}/bytes_per_second"] = bandwidth
    return rates

#: Seconds to issue an op on the reference host, by family: first quartiles in the traces of a ResNet-50 (V100, torch 2,
#: hta_resnet50_ddp1), Qwen 0.5B, OWLv2, TimeSformer and BERT (H100, TraceLens), divided by ``PROFILED``.
_ISSUE = {
    "elementwise": 6.5e-6, "random": 8e-6, "reduction": 8.5e-6, "softmax": 7e-6, "matmul": 24e-6,
    "convolution": 32e-6, "convolution_backward": 61e-6, "normalization": 38e-6, "pooling": 19e-6,
    "indexing": 13e-6, "attention": 36e-6, "encoder": 200e-6, "recurrent": 115e-6, "linear_algebra": 80e-6,
    "fourier": 35e-6, "sorting": 35e-6, "other": 13e-6, "view": 2e-6, "optimizer": 4e-6,
    "quantized": 13e-6,
}  # fmt: skip
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
#: The same of ops that are far from their family: cuDNN's batch norm has descriptors to fill, other norms have none.
#: Recurrent ones are the calibrated times of an H100's and an H200's host (calibration/records), at the pace at which
#: that host issues elementwise ops.
_ISSUE_OF = {
    "aten::native_layer_norm": 18e-6, "aten::native_group_norm": 20e-6, "aten::native_layer_norm_backward": 46e-6,
    "aten::native_group_norm_backward": 50e-6, "optimizer::SGD": 2.5e-6, "optimizer::Adam": 6e-6,
    "optimizer::AdamW": 6e-6,
    **{f"aten::{kind}_backward": 500e-6 for kind in _RECURRENT}, **{f"aten::{kind}_cell": 60e-6 for kind in _RECURRENT},
    **{f"aten::{kind}_cell_backward": 145e-6 for kind in _RECURRENT},
}  # fmt: skip
#: What a launch takes the reference host (``cudaLaunchKernel``; first quartiles of 3.1 to 4.6 us in the same traces,
#: 4.2 in the middle, divided by ``PROFILED``).
_LAUNCH_CALL = 3e-6
#: What each kernel of a recurrent layer adds, which is as many as it has time steps, or a few: cuDNN starts all of them
#: within one call, so that each takes the host a launch and none of what makes an op of it.
_ISSUE_KERNEL = {f"aten::{kind}{end}": _LAUNCH_CALL for kind in _RECURRENT for end in ("", "_backward")}
#: Seconds to issue an update besides what each tensor takes. A foreach op takes 12 us and half a microsecond for each
#: tensor (hta_resnet50_ddp1: 161 tensors, 106 us under the profiler); SGD with momentum has three of them, Adam twelve.
_UPDATE = {"": 150e-6, "/optimizer::SGD": 60e-6, "/optimizer::Adam": 200e-6, "/optimizer::AdamW": 200e-6}
#: Times by which the profiler lengthens an op's host time. A convolution, a batch norm and a ReLU take 114 us together
#: in the trace of ResNet-50; DenseNet-201, which consists of them, is bound by a host that takes some 90 (TITAN V, half
#: precision, batch 12).
PROFILED = 1.4
#: ``dispatch_seconds`` of the reference host: a modern server CPU. Another CPU issues in proportion to its own.
REFERENCE_DISPATCH = 1.0e-6
#: How far apart two hosts are taken to be at the most: dispatch alone does not tell the whole of a host.
_FARTHEST = 2.0
#: From the same traces: a kernel starts on an idle stream so long after its launch began, and an idle wait returns.
_IDLE_LAUNCH, _SYNC, _QUEUED_COPY = 7e-6, 8e-6, 6e-6
#: Seconds until the first op has run (context, module loading), and those of the first call of each op: hta_alexnet's
#: first calls on an A100 and the usual few milliseconds of lazy module loading.
_CONTEXT, _FIRST_CALL = 2.5, 4e-3
#: What lies between the ops where no CPU was calibrated: the coefficients that calibrated servers have in common.
_USUAL_FRAMEWORK = {
    "step": 2e-6, "python_call": 0.4e-6, "training_step": 20e-6, "autograd_node": 2.4e-6, "backward_op": 0.5e-6,
    "op_reuse_distance_100_ops": 0.4e-6,
}  # fmt: skip


def published_host(sheet: DataSheet, cpu: DeviceFit | None) -> tuple[dict[str, float], dict[str, float]]:
    """(rates, framework) of a GPU's fit, in seconds and bytes per second, driven by the host of ``cpu``.

    ``cpu`` None stands for the reference host.
    """
    scale = 1.0
    between = _USUAL_FRAMEWORK
    if cpu is not None:
        between = {name: value for name, value in cpu.framework.items() if name in LEARNT}
    if sheet.vendor == "apple":
        rates, own = apple.mps_host(sheet)
        return {**rates, "context_seconds": _CONTEXT, "first_call_seconds": _FIRST_CALL}, {**between, **own}
    if cpu is not None:
        ratio = cpu.rates.get(ISSUE_RATIO) or cpu.rates.get("dispatch_seconds", REFERENCE_DISPATCH) / REFERENCE_DISPATCH
        scale = min(max(ratio, 1.0 / _FARTHEST), _FARTHEST)
    issue = {f"host/{name}": scale * seconds for name, seconds in (*_ISSUE.items(), *_ISSUE_OF.items())}
    issue |= {f"{HOST_KERNEL}/{name}": scale * seconds for name, seconds in _ISSUE_KERNEL.items()}
    update = {f"host_update{name}": scale * seconds for name, seconds in _UPDATE.items()}
    framework = {**between, **issue, **update, "host": scale * _ISSUE["elementwise"]}
    rates = {
        "launch_seconds": _IDLE_LAUNCH, "sync_seconds": _SYNC, "issue_seconds": _QUEUED_COPY * scale,
        "context_seconds": _CONTEXT, "first_call_seconds": _FIRST_CALL, **copy_rates(sheet),
    }  # fmt: skip
    return rates, framework

#: What torch calls a device of each vendor.
_DEVICES = {"nvidia": "cuda", "amd": "cuda", "intel": "xpu", "apple": "mps"}
#: Standard deviation of log(seconds) that whole steps add to the errors of their ops, where the GPU's own numbers are
#: known and where its data sheet alone is: what a published timing of a step does not tell of its host, driver and
#: cooling. With these the 90 % interval holds nine in ten of the published steps that no fit saw.
_BASE = {"published": 0.15, "data sheet": 0.25}
#: Bytes of a GB on a data sheet. Sheets count 2^30, and PyTorch finds some 7 % less than that free: error correction,
#: driver and context have taken it.
_GB = 1e9


def gpu_profile(name: str, cpu: Profile | None = None) -> Profile:
    """The profile of the GPU that the catalog finds under ``name``, driven by the host that ``cpu`` was measured on.

    Without ``cpu`` the host is the usual one of published measurements. Nothing in it was measured by placer: its one
    fit names the GPU, whose published knowledge prices every op. Raises UnknownGPU.
    """
    sheet = find_gpu(name)
    device = _DEVICES[sheet.vendor]
    host = cpu.fit("cpu") if cpu is not None and "cpu" in cpu.devices() else None
    rates, framework = published_host(sheet, host)
    memory = int(sheet.memory_gb * _GB)
    facts: dict[str, object] = {"accelerators": [{"device": device, "name": sheet.name, "memory_bytes": memory}]}
    reference = ""
    if cpu is not None and host is not None:
        facts["host_cores"] = cpu.fingerprint.get("cores")
        # What the host is called. Not its profile: that may be a path, which no profile holds.
        reference = str(cpu.fingerprint.get("cpu") or "an unknown CPU")
    base = apple.STEP_SIGMA if sheet.vendor == "apple" else _BASE[device_model(sheet.name).provenance]
    fit = DeviceFit(
        device=device, threads=1, rates={**_rates(sheet), **rates}, families={}, framework=framework,
        interval={"base": base, "ops": 1.0, HOST_DOUBT: 0.0 if host is None else host.interval.get(HOST_DOUBT, 0.0)},
        reference=reference, gpu=sheet.name,
    )  # fmt: skip
    return Profile(
        schema=SCHEMA, created="", fingerprint=facts, samples=(),
        fits=(fit,), noise={}, warnings=(), complete=True, seconds=0.0, name=sheet.name,
    )  # fmt: skip


def _rates(sheet: DataSheet) -> dict[str, float]:
    """Peaks in FLOP/s and bytes/s, for what limits an op; the prices themselves come from the device model."""
    peaks = {
        "float32": sheet.float32_tflops,
        "float64": sheet.float64_tflops,
        "float16": max(sheet.tensor_float16_tflops, sheet.float16_tflops),
        "bfloat16": sheet.tensor_bfloat16_tflops,
    }
    return {
        **{f"flops/{dtype}": 1e12 * peak for dtype, peak in peaks.items() if peak > 0.0},
        "bytes_per_second": 1e9 * sheet.bandwidth_gbps,
        "dispatch_seconds": LAUNCH,
        "memory_bytes": _GB * sheet.memory_gb,
    }

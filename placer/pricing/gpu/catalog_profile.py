"""A GPU of the catalog -> a profile of it, as if a machine with the present host had that GPU.

The host's share: Python, the dispatcher, autograd and what issues an op are the same code whatever the GPU, so its
costs are those of every host (``host_costs``), at the pace that its CPU suggests.
"""

from __future__ import annotations

import math
from dataclasses import replace

from placer.pricing.framework import HOST_DOUBT, ISSUE_RATIO, LEARNT, host_framework
from placer.pricing.gpu import apple
from placer.pricing.gpu.device_model import device_model
from placer.pricing.gpu.physics import LAUNCH
from placer.pricing.timeline import copies_of_steps
from placer.profile import DataSheet, Device, Profile, find_gpu, uncalibrated

#: Bytes per second of pinned and of pageable memory over 16 lanes, by generation of PCIe. Pinned: bandwidthTest on
#: P100 and V100 (3), A100 (4), an unnamed PCIe 5 GPU. Pageable: traces of V100 (7 to 11 GB/s), A100 (6) and H100
#: (11 to 18).
_PCIE = {1: (3e9, 2.5e9), 2: (6e9, 4e9), 3: (12e9, 6.5e9), 4: (25e9, 8e9), 5: (46e9, 13e9), 6: (80e9, 14e9)}
#: The same of a chip-to-chip link, where the sheet names no PCIe, and of memory that host and GPU share.
_LINK, _SHARED = (200e9, 30e9), (60e9, 40e9)
#: Seconds to begin a copy: pageable (the host waits; 9 to 13 us in the calibrations of an H100 and two H200s), pinned,
#: and in shared memory.
_PAGEABLE, _PINNED, _SHARED_START = 11e-6, 7e-6, 10e-6
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
    start = _SHARED_START if sheet.integrated else _PAGEABLE
    rates = {}
    for direction in ("h2d", "d2h"):
        for memory, first, bandwidth in (("pageable", start, pageable), ("pinned", _PINNED, pinned)):
            rates[f"copy/{direction}/{memory}/seconds_per_tensor"] = first
            rates[f"copy/{direction}/{memory}/bytes_per_second"] = bandwidth
        if not sheet.integrated:
            rates |= copies_of_steps(direction, start, pageable)
    return rates


#: ``dispatch_seconds`` of the reference host, a modern server CPU. Half of what another's differ by (of their log) is
#: its pace: one op, timed in one moment, does not tell the whole of a host.
REFERENCE_DISPATCH = 1.0e-6
#: Standard deviation of log(seconds) of what a host takes for a step where nobody measured its pace: with it the 90 %
#: interval holds nine in ten of the cells of the records of NVIDIA GPUs, priced as if these were not calibrated.
_ANY_HOST = 0.25
#: From profiler traces of V100, A100 and H100: a kernel starts on an idle stream so long after its launch began, and an
#: idle wait returns.
_IDLE_LAUNCH, _SYNC, _QUEUED_COPY = 7e-6, 8e-6, 6e-6
#: Seconds until the first op has run (context, module loading), and those of the first call of each op: hta_alexnet's
#: first calls on an A100 and the usual few milliseconds of lazy module loading.
_CONTEXT, _FIRST_CALL = 2.5, 4e-3


def published_host(sheet: DataSheet, cpu: Device | None) -> tuple[dict[str, float], dict[str, float]]:
    """(rates, framework) of a GPU's fit, in seconds and bytes per second, driven by the host of ``cpu``.

    ``cpu`` None stands for the reference host.
    """
    pace = 1.0
    if cpu is not None:
        ratio = cpu.rates.get(ISSUE_RATIO) or cpu.rates.get("dispatch_seconds", REFERENCE_DISPATCH) / REFERENCE_DISPATCH
        pace = math.sqrt(ratio)
    first_use = {"context_seconds": _CONTEXT, "first_call_seconds": _FIRST_CALL}
    if sheet.vendor == "apple":
        rates, framework = apple.mps_host(sheet)
        between = apple.USUAL_FRAMEWORK if cpu is None else cpu.framework
        return {**rates, **first_use}, {**{name: between[name] for name in LEARNT if name in between}, **framework}
    rates = {
        "launch_seconds": _IDLE_LAUNCH,
        "sync_seconds": _SYNC,
        "issue_seconds": _QUEUED_COPY * pace,
        **first_use,
        **copy_rates(sheet),
    }
    return rates, {name: pace * seconds for name, seconds in host_framework().items()}


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
    device names the GPU, whose published knowledge prices every op. Raises UnknownGPU.
    """
    sheet = find_gpu(name)
    # What issues is one thread: an op timed with many tells how they start.
    host = cpu.fit("cpu", threads=1) if cpu is not None and "cpu" in cpu.devices() else None
    fit = gpu_from_sheet(sheet, host)
    memory = int(sheet.memory_gb * _GB)
    facts: dict[str, object] = {"accelerators": [{"device": fit.device, "name": sheet.name, "memory_bytes": memory}]}
    if cpu is not None and host is not None:
        facts["host_cores"] = cpu.fingerprint.get("cores")
        # What the host is called. Not its profile: that may be a path, which no profile holds.
        fit = replace(fit, reference=str(cpu.fingerprint.get("cpu") or "an unknown CPU"))
    return uncalibrated([fit], facts, sheet.name)


def gpu_from_sheet(sheet: DataSheet, host: Device | None) -> Device:
    """A GPU by its data sheet, driven by one thread of a CPU; None is the host of published measurements."""
    rates, framework = published_host(sheet, host)
    base = apple.STEP_SIGMA if sheet.vendor == "apple" else _BASE[device_model(sheet.name).provenance]
    doubt = math.hypot(_ANY_HOST, 0.0 if host is None else host.interval.get(HOST_DOUBT, 0.0))
    return Device(
        device=_DEVICES[sheet.vendor],
        threads=1,
        rates={**_rates(sheet), **rates},
        families={},
        framework=framework,
        interval={"base": base, "ops": 1.0, HOST_DOUBT: doubt},
        gpu=sheet.name,
    )


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

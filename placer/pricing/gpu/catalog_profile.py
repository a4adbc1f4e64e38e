"""A GPU of the catalog -> a profile of it, as if a machine with the present host had that GPU."""

from __future__ import annotations

from placer.pricing.gpu.device_model import device_model
from placer.pricing.gpu.host import published_host
from placer.pricing.gpu.physics import LAUNCH
from placer.profile import SCHEMA, DataSheet, DeviceFit, Profile, find_gpu

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
    fit = DeviceFit(
        device=device, threads=1, rates={**_rates(sheet), **rates}, families={}, framework=framework,
        interval={"base": _BASE[device_model(sheet.name).provenance], "ops": 1.0},
        reference=_cpu_name(cpu) if cpu is not None and host is not None else "", gpu=sheet.name,
    )  # fmt: skip
    memory = int(sheet.memory_gb * _GB)
    facts: dict[str, object] = {"accelerators": [_accelerator(sheet, device, memory)]}
    if cpu is not None and host is not None:
        facts["host_cores"] = cpu.fingerprint.get("cores")
    return Profile(
        schema=SCHEMA, created="", fingerprint=facts, samples=(),
        fits=(fit,), noise={}, warnings=(), complete=True, seconds=0.0, name=sheet.name,
    )  # fmt: skip


def _cpu_name(profile: Profile) -> str:
    """What a host is called. Not its profile: that may be a path, which no profile holds."""
    return str(profile.fingerprint.get("cpu") or "an unknown CPU")


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


def _accelerator(sheet: DataSheet, device: str, memory: int) -> dict[str, object]:
    return {"device": device, "name": sheet.name, "memory_bytes": memory}

"""The host of a GPU that nobody calibrated: what issuing an op takes, from this machine's CPU and published traces.

Python, the dispatcher and autograd are the same code whatever the device, so what they take between the ops is what
calibration measured on this CPU. Issuing an op to a GPU adds its checks, the caching allocator, descriptors of cuBLAS
or cuDNN, and a launch for each kernel. Profiler traces show these; what the profiler itself adds is taken off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placer.pricing.framework import LEARNT
from placer.pricing.gpu.copies import copy_rates

if TYPE_CHECKING:
    from placer.profile import DataSheet, DeviceFit

#: Seconds to issue an op on the reference host, by family: first quartiles in the traces of a ResNet-50 (V100, torch 2,
#: hta_resnet50_ddp1), Qwen 0.5B, OWLv2, TimeSformer and BERT (H100, TraceLens), divided by ``PROFILED``.
_ISSUE = {
    "elementwise": 6.5e-6, "random": 8e-6, "reduction": 8.5e-6, "softmax": 7e-6, "matmul": 24e-6,
    "convolution": 32e-6, "convolution_backward": 61e-6, "normalization": 38e-6, "pooling": 19e-6,
    "indexing": 13e-6, "attention": 36e-6, "encoder": 200e-6, "recurrent": 100e-6, "linear_algebra": 80e-6,
    "fourier": 35e-6, "sorting": 35e-6, "other": 13e-6, "view": 2e-6, "optimizer": 4e-6,
}  # fmt: skip
#: The same of ops that are far from their family: cuDNN's batch norm has descriptors to fill, other norms have none.
_ISSUE_OF = {
    "aten::native_layer_norm": 18e-6, "aten::native_group_norm": 20e-6, "aten::native_layer_norm_backward": 46e-6,
    "aten::native_group_norm_backward": 50e-6, "optimizer::SGD": 2.5e-6, "optimizer::Adam": 6e-6,
    "optimizer::AdamW": 6e-6,
}  # fmt: skip
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
_LAUNCH, _SYNC, _QUEUED_COPY = 7e-6, 8e-6, 6e-6
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
        ratio = cpu.rates.get("dispatch_seconds", REFERENCE_DISPATCH) / REFERENCE_DISPATCH
        scale = min(max(ratio, 1.0 / _FARTHEST), _FARTHEST)
        between = {name: value for name, value in cpu.framework.items() if name in LEARNT}
    issue = {f"host/{name}": scale * seconds for name, seconds in (*_ISSUE.items(), *_ISSUE_OF.items())}
    update = {f"host_update{name}": scale * seconds for name, seconds in _UPDATE.items()}
    framework = {**between, **issue, **update, "host": scale * _ISSUE["elementwise"]}
    rates = {
        "launch_seconds": _LAUNCH, "sync_seconds": _SYNC, "issue_seconds": _QUEUED_COPY * scale,
        "context_seconds": _CONTEXT, "first_call_seconds": _FIRST_CALL, **copy_rates(sheet),
    }  # fmt: skip
    return rates, framework

"""What pricing does for GPUs, mechanism by mechanism. Code that is a few lines in other functions is not counted."""

from __future__ import annotations

from functools import partial

import numpy as np

from placer.calibration.ablation import gpu_switches as switches
from placer.calibration.ablation.gpu_switches import EVALUATE, PUBLISHED_HOST, ROWS_OF
from placer.calibration.ablation.mechanism import Mechanism
from placer.calibration.ablation.switching import Changes, changed, to
from placer.pricing import Clocks, framework_counts

_PRICING, _FIT = "placer.pricing", "placer.calibration.published"
_MODEL, _NETWORK, _PHYSICS = (f"{_PRICING}.gpu.{name}" for name in ("device_model", "network", "physics"))
_HOST, _COPIES, _ROWS = (f"{_PRICING}.gpu.{name}" for name in ("host", "copies", "rows"))
_TIMELINE, _COMPILED, _FUSION = (f"{_PRICING}.{name}" for name in ("timeline", "compiled", "fusion"))
#: Modules that read published operators and fit the networks.
_FITTING = ("training", "samples", "ops", "operators", "fit", "numbers_file", "counted_step")


def _mechanism(name: str, changes: Changes, *code: str) -> Mechanism:
    return Mechanism(name, changed(changes), code)


LEARNT = _mechanism(
    "what is learnt over the physics", {EVALUATE: to(switches.nothing_learnt)}, _NETWORK,
    *(f"{_FIT}.{name}" for name in _FITTING),
)  # fmt: skip
_CACHES = _mechanism(
    "caches in the physics", {f"{_PHYSICS}.L2_BYTES_PER_CLOCK": to(0.0)}, f"{_PHYSICS}:L2_BYTES_PER_CLOCK"
)
_POWER_LIMITS = _mechanism("power limits", {f"{_PHYSICS}._PER_WATT": to({})}, f"{_PHYSICS}:_PER_WATT")
_EMPTY_KERNELS = _mechanism("time of an empty kernel", {f"{_MODEL}.LAUNCH": to(0.0)}, f"{_PHYSICS}:LAUNCH")
_TF32 = _mechanism(
    "TF32", {f"{_MODEL}.DeviceModel._dtype": to(lambda _, row: row.dtype)}, f"{_MODEL}:DeviceModel._dtype",
    f"{_MODEL}:_SWITCHES",
)  # fmt: skip
_DEVICE = (
    LEARNT,
    *(
        _mechanism(f"what is learnt of kernels: {kind}", switches.physics_of(kind), *(f"{_PHYSICS}:{n}" for n in code))
        for kind, code in {
            "product": ["_product"], "convolution": [], "depthwise": [], "attention": ["_attention"],
            "recurrent": ["_recurrent"], "memory": ["_memory"],
        }.items()
    ),
    _mechanism("numbers of each GPU", {EVALUATE: switches.unknown_gpu}),
    _mechanism(
        "numbers of each op", {f"{_NETWORK}.Network._known": switches.family_of_label}, f"{_NETWORK}:Network._known",
        f"{_ROWS}:label_of",
    ),
    _mechanism(
        "trust in an op by what was published of it",
        switches.networks_with(trust=lambda network: dict.fromkeys(network.labels, 1.0)), f"{_FIT}.numbers_file:trust",
    ),
    _mechanism(
        "inputs cut at the range of published ones",
        switches.networks_with(low=lambda n: np.full_like(n.low, -np.inf), high=lambda n: np.full_like(n.high, np.inf)),
    ),
    _mechanism(
        "bounds of what is learnt", {f"{_MODEL}.kernel_seconds": to(switches.unbounded)}, f"{_PHYSICS}:kernel_seconds"
    ),
    _mechanism("bound of concatenations", {f"{_MODEL}._MOST_OF_A_COPY": to(np.inf)}, f"{_MODEL}:_MOST_OF_A_COPY"),
    _mechanism("input: arithmetic over memory", switches.without_inputs(0)),
    _mechanism("input: seconds by physics", switches.without_inputs(1)),
    _mechanism("input: operands over caches", switches.without_inputs(2)),
    _mechanism("inputs: precision", switches.without_inputs(3, 4, 5, 6)),
    _mechanism(
        "inputs: waves of tiles", switches.without_inputs_of("_waves"), f"{_PHYSICS}:_waves", f"{_PHYSICS}:TILES"
    ),
    _mechanism("inputs: alignment", switches.without_inputs_of("_aligned"), f"{_PHYSICS}:_aligned"),
    _mechanism("inputs: vendor, age and size of the GPU", switches.without_inputs_of("_about"), f"{_PHYSICS}:_about"),
    _mechanism("rows: layouts", switches.columns(channels_last=0.0, a_transposed=0.0, b_transposed=0.0)),
    _mechanism("rows: dilated, one- or three-dimensional", switches.columns(dilated=0.0, one_d=0.0, three_d=0.0)),
    _mechanism("rows: broadcast and strided operands", switches.columns(strided=0.0, broadcast=0.0)),
    _mechanism("rows: inner sizes", switches.columns(inner=1.0)),
    _mechanism("rows: training and other flags", switches.columns(flag=0.0)),
    _mechanism("rows: causal, masked, dropout", switches.columns(causal=0.0, masked=0.0, dropout=0.0)),
    _mechanism("depthwise convolutions by themselves", {ROWS_OF: switches.depthwise_as_any}),
    _mechanism("gradients of a convolution as products", {ROWS_OF: switches.gradient_as_forward}),
    _mechanism("gradients op by op", switches.priced(switches.twice_the_forward)),
    _CACHES, _POWER_LIMITS, _EMPTY_KERNELS, _TF32,
)  # fmt: skip
_ON_HOST = (
    _mechanism("host: a cost for each family", {f"{_HOST}._ISSUE": switches.one_cost}, f"{_HOST}:_ISSUE"),
    _mechanism("host: ops unlike their family", {f"{_HOST}._ISSUE_OF": to({})}, f"{_HOST}:_ISSUE_OF"),
    _mechanism("host: views", {f"{_HOST}._ISSUE": lambda issue: {**issue, "view": 0.0}}),
    _mechanism("host: updates of all tensors", {f"{_HOST}._UPDATE": to({"": 0.0})}, f"{_HOST}:_UPDATE"),
    _mechanism("host: this CPU", {PUBLISHED_HOST: switches.usual_host}),
    _mechanism("host: ops as fast as this CPU's", {f"{_HOST}._FARTHEST": to(1.0)}, f"{_HOST}:_FARTHEST"),
    _mechanism("host: framework between the ops", switches.framework(lambda name: False)),
    _mechanism(
        "host: evicted code of the framework",
        switches.framework(lambda name: not any(word in name for word in ("reuse_distance", "evicted", "cold"))),
    ),
)
_ON_CLOCKS = (
    _mechanism(
        "two clocks", {f"{_TIMELINE}.played": to(switches.in_turn)}, f"{_PRICING}.clocks", f"{_TIMELINE}:played"
    ),
    _mechanism(
        "order of the ops in the queue", {f"{_TIMELINE}.played": to(switches.slower_of_both)}, f"{_PRICING}.clocks",
        f"{_TIMELINE}:played",
    ),
    _mechanism("several steps in a row", {f"{_TIMELINE}.played": to(switches.from_idle)}),
    _mechanism(
        "a full queue", {f"{_TIMELINE}.Clocks": to(partial(Clocks, depth=10**9))}, f"{_PRICING}.clocks:QUEUE_DEPTH"
    ),
    _mechanism("delay of a launch", {f"{_HOST}._LAUNCH": to(0.0)}),
    _mechanism(
        "waits for the device", switches.priced(switches.never_waiting), f"{_PRICING}.host_time:waits_for_device"
    ),
    _mechanism("copy of the batch", switches.copied("device"), f"{_TIMELINE}:copy_seconds", _COPIES),
    _mechanism("copies from pageable memory wait", switches.copied("pinned")),
    _mechanism(
        "generations of PCIe", {f"{_COPIES}._PCIE": lambda known: dict.fromkeys(known, known[3])}, f"{_COPIES}:_PCIE"
    ),
    _mechanism("start of a copy", {f"{_COPIES}._PAGEABLE_IN": to(0.0)}, f"{_COPIES}:_PAGEABLE_IN"),
)

#: Of eager steps.
GPU_MECHANISMS: tuple[Mechanism, ...] = (*_DEVICE, *_ON_HOST, *_ON_CLOCKS)
#: Of the physics, to be switched off where nothing is learnt over them.
PHYSICS: tuple[Mechanism, ...] = (
    _CACHES, _POWER_LIMITS, _EMPTY_KERNELS, _TF32,
    _mechanism("share of a peak that is reached", {f"{_PHYSICS}._REACHED": to(1.0)}, f"{_PHYSICS}:_REACHED"),
)  # fmt: skip
#: Of compiled steps.
COMPILED_MECHANISMS: tuple[Mechanism, ...] = (
    _mechanism(
        "compiled steps", {f"{_PRICING}.predict.compiled_step": to(lambda found, _: found)}, _COMPILED, _FUSION,
        f"{_PRICING}.compiled_host",
    ),
    _mechanism("traffic that fusing saves", switches.places(traffic=1.0), f"{_FUSION}:_Fusion._traffic"),
    _mechanism("launches that fusing saves", switches.places(first=True)),
    _mechanism(
        "kernels of several operands merged", {f"{_FUSION}._Fusion._apart": to(lambda *_: False)},
        f"{_FUSION}:_Fusion._apart", f"{_FUSION}:_Fusion._merge",
    ),
    _mechanism(
        "values computed anew in the backward pass", {f"{_FUSION}._Fusion._written": switches.always_written},
        f"{_FUSION}:_Fusion._written", f"{_FUSION}:_SAVED",
    ),
    _mechanism("most calls of a kernel", {f"{_FUSION}.LARGEST": to(10**9)}, f"{_FUSION}:LARGEST"),
    _mechanism(
        "convolutions laid out channels last", {f"{_COMPILED}._laid_out": to(lambda found, *_: found.seconds)},
        f"{_COMPILED}:_laid_out", f"{_COMPILED}:_CONVOLUTIONS",
    ),
    _mechanism(
        "host of a compiled step",
        {f"{_COMPILED}.host_counts": to(lambda trace, seconds, *_: framework_counts(trace, seconds))},
        f"{_PRICING}.compiled_host:host_counts",
    ),
)  # fmt: skip

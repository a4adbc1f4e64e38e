"""What a host takes for a step on a GPU: how often it does each thing that a step consists of, times what each costs.

A step on a fast GPU lasts as long as its host takes to issue it: on an H100 and two H200s all but 14 of 593 do. What
the host runs is the same code everywhere, Python, torch's dispatcher and autograd's engine; hosts differ by how fast
they run it, their pace. So the costs come with placer, and a calibration measures one number.
"""

from __future__ import annotations

from collections.abc import Mapping

from placer.pricing.ops import ANY_UPDATE, row_of, rows_of_family, updates
from placer.pricing.shapes import FUSED
from placer.pricing.timeline import HOST, HOST_KERNEL, HOST_UPDATE

#: Counts of a step (see ``framework.framework_counts``) that take the host time besides its ops.
COUNTED = ("step", "python_call", "training_step", "autograd_node")
#: Families whose ops take another time to issue than most ops do; ``ANY_OP`` is what those take.
FAMILIES = (
    "view", "matmul", "elementwise", "normalization", "attention", "convolution", "convolution_backward", "encoder",
)  # fmt: skip
ANY_OP = "any_op"
#: A recurrent op and its gradient, and each kernel of either; an optimizer's step, and each op of it on each tensor.
RECURRENT, RECURRENT_BACKWARD, RECURRENT_KERNEL = "recurrent", "recurrent_backward", "recurrent_kernel"
UPDATE, UPDATED_BY_OP = "optimizer_step", "tensor_by_op"
#: All that ``COSTS`` has.
HOST_WORK = (
    *COUNTED, *FAMILIES, ANY_OP, RECURRENT, RECURRENT_BACKWARD, RECURRENT_KERNEL, UPDATE, UPDATED_BY_OP,
)  # fmt: skip

#: Seconds of each on a host of pace 1. Fitted to whole steps of the records of NVIDIA GPUs whose device waited for the
#: host, without their copies: 263 of the three calibrations, and 560 cells. On a record and on networks that they are
#: not fitted to, steps are 16, 16 and 15 % off in the median (``python -m placer.calibration.validation.host_costs
#: calibration/records/nvidia-*``, which prints all of this). A cost holds what goes along with its name: a part of what
#: a product takes is in the Python calls of the layers around it.
COSTS: Mapping[str, float] = {
    "step": 10.3e-6, "python_call": 1.77e-6, "training_step": 265e-6, "autograd_node": 6.15e-6, "view": 8.84e-6,
    "matmul": 4.46e-6, "elementwise": 13.6e-6, "normalization": 13.1e-6, "attention": 24.4e-6, "convolution": 33.3e-6,
    "convolution_backward": 161e-6, "encoder": 14.3e-6, "any_op": 30.3e-6, "recurrent": 99.7e-6,
    "recurrent_backward": 425e-6, "recurrent_kernel": 15.3e-6, "optimizer_step": 273e-6, "tensor_by_op": 2.01e-6,
}  # fmt: skip


def host_framework(seconds: Mapping[str, float] = COSTS) -> dict[str, float]:
    """The ``framework`` of a ``Device`` (seconds) of a host that takes these ``seconds`` for ``HOST_WORK``."""
    found = {name: seconds[name] for name in COUNTED}
    found |= {f"{HOST}/{family}": seconds[family] for family in FAMILIES}
    found[HOST] = seconds[ANY_OP]
    for row in rows_of_family("recurrent"):
        name = f"aten::{row.op}"
        found[f"{HOST}/{name}"] = seconds[RECURRENT_BACKWARD if row.backward else RECURRENT]
        found[f"{HOST_KERNEL}/{name}"] = seconds[RECURRENT_KERNEL]
    found[f"{HOST_UPDATE}/{ANY_UPDATE}"] = seconds[UPDATE]
    for update in (row_of(ANY_UPDATE), *updates()):
        found[f"{HOST}/{update.op}"] = update.list_kernels * seconds[UPDATED_BY_OP]
        found[f"{HOST}/{update.op}{FUSED}"] = seconds[UPDATED_BY_OP]
    return found

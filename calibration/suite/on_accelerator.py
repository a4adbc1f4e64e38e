"""Networks of the suite as they are run on accelerators: at larger batches, in float32 and in bfloat16."""

from __future__ import annotations

from dataclasses import replace

import torch

from placer.calibration.suite import cnn, mlp, transformer
from placer.calibration.suite.entry import Entry

#: Name, and the batches: one that a CPU would take, too, and a large one.
_BATCHES = {
    "resnet50": (4, 64), "bert_base": (2, 32), "gpt2_small": (2, 32), "vit_small": (8, 128), "unet_small": (8, 32),
    "transformer_encoder_prenorm": (16, 128), "mlp_tabular": (256, 4096),
}  # fmt: skip


def _entries() -> tuple[Entry, ...]:
    known = {entry.name: entry for module in (cnn, mlp, transformer) for entry in module.ENTRIES}
    found = []
    for name, batches in _BATCHES.items():
        entry = known[name]
        none: frozenset[str] = frozenset()
        found.append(
            replace(entry, name=f"{name}_bfloat16", batches=batches, autocast=torch.bfloat16, suites=none)
        )
        found.append(replace(entry, name=f"{name}_large_batch", batches=batches[1:], suites=none))
    return tuple(found)


#: In bfloat16, each beside the same in float32.
ENTRIES = _entries()

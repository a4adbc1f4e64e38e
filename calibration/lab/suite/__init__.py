"""All networks that placer is validated on; ``placer.calibration.suite`` has those of the quick suite."""

from __future__ import annotations

from dataclasses import replace

import torch

from placer.calibration.suite import QUICK, Entry

__all__ = ["SUITES", "accelerator_entries", "entries", "entries_by_name"]

#: A taste of every family; the systems that the project answers for by name; both and more; networks drawn at random
#: that no fit ever saw.
SUITES = ("quick", "reference", "full", "held-out")
#: Networks as they are run on accelerators, and the batches: one that a CPU would take, too, and a large one.
_ON_ACCELERATORS = {
    "resnet50": (4, 64), "bert_base": (2, 32), "gpt2_small": (2, 32), "vit_small": (8, 128), "unet_small": (8, 32),
    "transformer_encoder_prenorm": (16, 128), "mlp_tabular": (256, 4096),
}  # fmt: skip


def entries(suite: str) -> list[Entry]:
    """Every network of a suite, in a fixed order, those whose packages are missing included (``Entry.missing`` tells).

    Raises ValueError for an unknown suite.
    """
    from placer.calibration.lab.suite import dense, held_out, images, reference, sequences

    if suite == "quick":
        return list(QUICK)
    if suite == "reference":
        return list(reference.ENTRIES)
    if suite == "full":
        return [*QUICK, *dense.ENTRIES, *sequences.ENTRIES, *images.ENTRIES, *reference.ENTRIES]
    if suite == "held-out":
        return held_out.held_out_entries()
    raise ValueError(f"unknown suite {suite!r}: one of {', '.join(SUITES)} is accepted")


def accelerator_entries() -> list[Entry]:
    """Networks in bfloat16, each beside the same in float32, at batches that only an accelerator is for.

    They belong to no suite.
    """
    networks = {entry.name: entry for entry in entries("full")}
    found = []
    for name, batches in _ON_ACCELERATORS.items():
        entry = networks[name]
        found.append(replace(entry, name=f"{name}_bfloat16", batches=batches, autocast=torch.bfloat16))
        found.append(replace(entry, name=f"{name}_large_batch", batches=batches[1:]))
    return found


def entries_by_name() -> dict[str, Entry]:
    """Every network that a record may have cells of."""
    everything = (*entries("full"), *accelerator_entries(), *entries("held-out"))
    return {entry.name: entry for entry in everything}

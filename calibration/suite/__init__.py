"""Real networks to validate on.

``quick`` is a taste of every family in about a minute, ``reference`` the systems the project answers for by name,
``full`` all of them; ``held-out`` are networks drawn at random that no fit ever saw. Only ``Entry.build`` imports the
packages a network comes from.
"""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import torch

from placer.calibration.suite.entry import Entry, Suite

__all__ = ["Entry", "Suite", "SUITES", "accelerator_entries", "entries"]

SUITES: tuple[Suite, ...] = get_args(Suite)
#: Networks as they are run on accelerators, and the batches: one that a CPU would take, too, and a large one.
_ON_ACCELERATORS = {
    "resnet50": (4, 64), "bert_base": (2, 32), "gpt2_small": (2, 32), "vit_small": (8, 128), "unet_small": (8, 32),
    "transformer_encoder_prenorm": (16, 128), "mlp_tabular": (256, 4096),
}  # fmt: skip


def entries(suite: Suite) -> list[Entry]:
    """Every network of a suite, in a fixed order, those whose packages are missing included (``Entry.missing`` tells).

    Raises ``ValueError`` for an unknown suite.
    """
    if suite not in SUITES:
        raise ValueError(f"unknown suite {suite!r}: one of {', '.join(SUITES)} is accepted")
    from placer.calibration.suite import conv1d, dense, graph, images, reference, sequences

    everything: tuple[Entry, ...] = (
        *conv1d.ENTRIES, *dense.PERCEPTRONS, *dense.TABLES, *dense.POLICIES, *dense.RECOMMENDERS, *dense.AUTOENCODERS,
        *sequences.RECURRENT, *sequences.EQUATIONS, *images.CONVOLUTIONAL, *images.GENERATIVE, *graph.ENTRIES,
        *sequences.TRANSFORMERS, *reference.ENTRIES,
    )  # fmt: skip
    return [entry for entry in everything if suite in entry.suites]


def accelerator_entries() -> list[Entry]:
    """Networks in bfloat16, each beside the same in float32, at batches that only an accelerator is for.

    They belong to no suite.
    """
    known = {entry.name: entry for entry in entries("full")}
    found = []
    for name, batches in _ON_ACCELERATORS.items():
        entry = replace(known[name], batches=batches, suites=frozenset())
        found.append(replace(entry, name=f"{name}_bfloat16", autocast=torch.bfloat16))
        found.append(replace(entry, name=f"{name}_large_batch", batches=batches[1:]))
    return found

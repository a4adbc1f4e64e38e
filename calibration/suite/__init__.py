"""Real networks to validate on.

``quick`` is a taste of every family in about a minute, ``reference`` the systems the project answers for by name,
``full`` all of them. Only ``Entry.build`` imports the packages a network comes from.
"""

from __future__ import annotations

from typing import get_args

from placer.calibration.suite.entry import Entry, Suite

__all__ = ["Entry", "Suite", "SUITES", "accelerator_entries", "entries"]

SUITES: tuple[Suite, ...] = get_args(Suite)


def entries(suite: Suite) -> list[Entry]:
    """Every network of a suite, in a fixed order, those whose packages are missing included (``Entry.missing`` tells).

    Raises ``ValueError`` for an unknown suite.
    """
    if suite not in SUITES:
        raise ValueError(f"unknown suite {suite!r}: one of {', '.join(SUITES)} is accepted")
    from placer.calibration.suite import (
        autoencoder,
        cnn,
        conv1d,
        generative,
        graph,
        mlp,
        ode,
        policy,
        recommender,
        recurrent,
        reference,
        tabular,
        transformer,
    )

    families = (
        conv1d, mlp, tabular, policy, recommender, autoencoder, recurrent, ode, cnn, generative, graph, transformer,
        reference,
    )  # fmt: skip
    return [entry for family in families for entry in family.ENTRIES if suite in entry.suites]


def accelerator_entries() -> list[Entry]:
    """Networks in bfloat16 and at batches that only an accelerator is for; they belong to no suite."""
    from placer.calibration.suite import on_accelerator

    return list(on_accelerator.ENTRIES)

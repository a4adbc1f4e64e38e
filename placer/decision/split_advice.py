"""Whether large embeddings are better off on the CPU: a question that advice asks of a model that consists of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from placer import tracing
from placer.decision.comparison import Comparison
from placer.decision.split import is_split
from placer.decision.timed import counted_seconds, is_cpu
from placer.pricing import SPLIT_SUFFIX, Prediction
from placer.workload import Workload, check_on_cpu, embedding_tables, weight_share

#: Embeddings are asked about that hold more than this share of the bytes of all parameters.
LARGE = 0.5
#: Most names of submodules that are told.
_TOLD = 3


class Found(NamedTuple):
    """The fastest step with the embeddings on the CPU.

    ``fits_on`` is the accelerator that the model fits on only so.
    """

    change: str
    how: str
    prediction: Prediction
    fits_on: str


def embeddings_on_cpu(
    workload: Workload, predictions: Mapping[str, Prediction], comparison: Comparison
) -> Found | None:
    """The step with all embeddings on the CPU and the rest on the best accelerator that is compared.

    None where the model has no large embeddings, or nothing beside them. Raises TraceError or ProfileError.
    """
    accelerators = [name for name in predictions if not is_cpu(name) and not is_split(name)]
    if not accelerators or workload.on_cpu:
        return None
    names = embedding_tables(workload)
    if weight_share(workload, names) <= LARGE:
        return None
    try:
        divided = dataclasses.replace(workload, on_cpu=check_on_cpu(names, workload))
    except ValueError:  # there is nothing else, or weights are shared
        return None
    priced, _ = comparison.price(tracing.trace(divided), divided)
    found = [p for name, p in priced.items() if is_split(name) and p.fits]
    if not found:
        return None
    best = min(found, key=lambda p: counted_seconds(p, workload.steps))
    accelerator = best.device.removesuffix(SPLIT_SUFFIX)
    more = f" and {len(names) - _TOLD} more" if len(names) > _TOLD else ""
    return Found(
        change=f"{', '.join(names[:_TOLD])}{more} on the CPU, the rest on {accelerator}",
        how=f"on_cpu={list(names)}",
        prediction=best,
        fits_on="" if predictions[accelerator].fits else accelerator,
    )

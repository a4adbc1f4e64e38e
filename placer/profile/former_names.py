"""Names that profiles of format 3 and older use for rates, counts, features and amounts, and today's names for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_SCALES = ("50us", "600us", "8ms")

#: Former name -> name. An amount fitted for one op is called ``name@op``, and the part before ``@`` is looked up.
FORMER: Mapping[str, str] = {
    # Rates.
    "pulse_seconds": "speed_probe_seconds",
    "beat_seconds": "first_speed_probe_seconds",  # of a speed probe that did other work; no longer used
    # Counts of the framework's own work.
    "op_among_many": "op_reuse_distance_100_ops",
    "call_among_many": "call_reuse_distance_100_ops",
    "crowded_op": "op_reuse_distance_30_forward_ops",
    "crowded_call": "call_reuse_distance_30_forward_ops",
    "number_operand": "scalar_operand",
    "displaced_call": "evicted_call",
    "displaced_update": "evicted_update",
    "stale_update": "update_reuse_distance",
    "stale_kernel": "update_kernel_reuse_distance",
    "stale_update_op": "update_op_reuse_distance",
    **{
        f"{what}_after_{scale}": f"{what}_reuse_distance_{scale}"
        for what in ("op", "recorded_op", "call", "backward_op")
        for scale in _SCALES
    },
    # Features and amounts of ops.
    "displaced": "evicted",
    "since": "reuse_distance",
    "stale": "reuse_distance",
}


def current(name: str) -> str:
    """Today's name for what ``name`` means in a profile of format 3 or older."""
    base, at, op = name.partition("@")
    return f"{FORMER.get(base, base)}{at}{op}"


def with_current_names(values: Mapping[str, float]) -> dict[str, float]:
    """The same numbers under today's names."""
    return {current(name): value for name, value in values.items()}


def current_names(names: Iterable[str]) -> tuple[str, ...]:
    """Today's names, in the same order."""
    return tuple(map(current, names))

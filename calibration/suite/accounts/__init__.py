"""Published accounts of "the same work on a CPU and on a GPU", rebuilt: one module per family."""

from __future__ import annotations

import importlib
from functools import cache

from placer.calibration.suite.accounts import hosts
from placer.calibration.suite.accounts.account import BOTH, Account, Part, Point, Side
from placer.calibration.suite.accounts.hosts import Host

__all__ = ["BOTH", "Account", "Host", "Part", "Point", "Side", "accounts", "hosts"]

#: A module of each family, in the table's order.
_FAMILIES: tuple[str, ...] = (
    "news_linear", "small_mlp", "mnist_mlp", "wide_mlp", "reinforcement", "pinn", "products", "recurrent", "liquid",
    "audio", "small_cnn", "big_cnn", "transformer", "graph_networks",
)  # fmt: skip


@cache
def accounts() -> tuple[Account, ...]:
    """Every account that is rebuilt. Each module is loaded on first use: some need packages torch does not bring."""
    found: list[Account] = []
    for family in _FAMILIES:
        found += importlib.import_module(f"placer.calibration.suite.accounts.{family}").ACCOUNTS
    return tuple(found)

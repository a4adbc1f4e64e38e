"""The error of a published network that cannot be built here."""

from __future__ import annotations


class NotBuilt(Exception):
    """The network of a published step cannot be built; the message says why."""

"""Fits of these tests run on one thread, where they give the same numbers again."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Put back by the fixtures of all tests."""
    torch.set_num_threads(1)

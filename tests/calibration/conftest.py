"""Validations of these tests run on one thread; what they fit to a record's journal is kept until the code changes."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def _fits(fits_are_kept: None) -> None:
    """For all of them."""


@pytest.fixture
def one_thread() -> None:
    """Put back by the fixtures of all tests."""
    torch.set_num_threads(1)

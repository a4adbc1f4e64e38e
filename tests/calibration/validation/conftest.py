"""Validations of these tests run on one thread."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture
def one_thread() -> None:
    """Put back by the fixtures of all tests."""
    torch.set_num_threads(1)

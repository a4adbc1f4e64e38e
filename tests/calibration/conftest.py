"""Validations of these tests run on one thread; what they fit to a record's journal is kept until the code changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from kept_fits import fits_are_kept


@pytest.fixture(scope="session", autouse=True)
def _fits(pytestconfig: pytest.Config) -> Iterator[None]:
    with fits_are_kept(pytestconfig):
        yield


@pytest.fixture
def one_thread() -> None:
    """Put back by the fixtures of all tests."""
    torch.set_num_threads(1)

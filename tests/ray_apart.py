"""Ray for tests: a cluster that nothing else on the machine knows of, or disturbs."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def ray_apart() -> Iterator[None]:
    """What Ray reads from the environment when it starts; put back afterwards."""
    with (
        # A short path, as Ray has sockets there.
        tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("RAY_TMPDIR", folder)  # else it would join the cluster of another test
        patch.setenv("RAY_worker_niceness", "0")  # else its workers would stand still beside other load
        patch.setenv("RAY_TQDM_PATCH_PRINT", "0")  # else it would replace ``print`` for all tests that come after
        yield

"""``%load_ext placer`` in a real IPython."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from torch.nn.modules import module as hooks

pytest.importorskip("IPython", reason="IPython is not installed")

CELL = """
import torch
net = torch.nn.Linear(84, 3)
for _ in range(3):
    out = net(torch.randn(32, 84))
"""
PROFILE = "--profile intel-xeon-avx512-2-core"


@pytest.fixture
def shell() -> Iterator[Any]:
    from IPython.core.interactiveshell import InteractiveShell

    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(history_length=0)
    assert shell.run_line_magic("load_ext", "placer") is None
    yield shell
    shell.run_line_magic("unload_ext", "placer")
    assert not hooks._has_any_global_hook()
    assert "placer" not in shell.magics_manager.magics["line"]
    InteractiveShell.clear_instance()


def test_a_notebook_is_told_so_far(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell.run_cell(CELL).success
    capsys.readouterr()
    shell.run_line_magic("placer", f"{PROFILE} --what-if T4")
    text = capsys.readouterr().out
    assert "32×84 float32" in text
    assert "T4" in text
    assert "Linear" in text

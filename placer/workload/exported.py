"""Programs saved by ``torch.export.save`` (``.pt2``) as models, with the example they were exported with.

torch unpickles such a file: it is code like any other target, and is loaded only where the user names it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from placer.errors import TargetError

SUFFIX = ".pt2"


def load_exported(target: str, *, train: bool = False) -> tuple[nn.Module, Any]:
    """The model in a file, and the inputs it was exported with (None where the file has none, or they need keywords).

    Exporting fixes what training changes (dropout, batch norm), so ``train`` only sets the ``training`` flag. Raises
    TargetError, with the reason in one line.
    """
    import torch

    path = Path(target)
    if not path.is_file():
        raise TargetError(f"there is no file {path}; an exported program is written by torch.export.save")
    try:
        program = torch.export.load(path)
        model = program.module()
    except Exception as error:  # the boundary to a file anybody may have written: whatever is wrong is one line
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise TargetError(f"{path} is not a program that torch.export.load reads: {lines[0]}") from error
    for part in model.modules():
        part.training = train  # .train() and .eval() of an exported program raise
    args, kwargs = program.example_inputs or ((), {})
    if args and kwargs:
        return model, None
    return model, tuple(args) or dict(kwargs) or None

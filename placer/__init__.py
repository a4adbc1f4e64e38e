"""placer puts a PyTorch workload on the device where it finishes first.

>>> placement = placer.choose(model, (32, 84))
>>> for x, y in placement.batches(loader):
...     ...

The names below are the whole public library. They are loaded on first use, so ``import placer`` costs next to nothing
and the command line can print its help without importing torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from placer.collector import without_collection

__version__ = "0.1.0"

__all__ = [
    "choose", "explain", "calibrate", "load_profile", "Options", "fleet", "Machine", "Fleet", "Job", "Part", "Loading",
    "Placement", "JobPlacement", "Prediction", "Decision", "Explanation", "Profile", "Workload",
    "PlacerError", "ProfileError", "ProfileMissing", "ProfileDamaged", "ProfileTooNew", "ProfileTooOld",
    "ProfileStale", "UnknownCPU", "UnknownGPU", "TraceError", "CalibrationError", "TimerError", "TargetError",
    "PlacerWarning", "__version__",
]  # fmt: skip

if TYPE_CHECKING:
    from placer.api import Options, calibrate, choose, explain, load_profile
    from placer.decision import Decision
    from placer.errors import (
        CalibrationError,
        PlacerError,
        PlacerWarning,
        ProfileDamaged,
        ProfileError,
        ProfileMissing,
        ProfileStale,
        ProfileTooNew,
        ProfileTooOld,
        TargetError,
        TimerError,
        TraceError,
        UnknownCPU,
        UnknownGPU,
    )
    from placer.explanation import Explanation
    from placer.fleets import Fleet, Machine, fleet
    from placer.placed import JobPlacement, Placement
    from placer.pricing import Prediction
    from placer.profile import Profile
    from placer.workload import Job, Loading, Part, Workload

#: Where the public names live; those not listed live in ``placer.errors``.
_HOMES = {
    "placer.api": ("choose", "explain", "calibrate", "load_profile", "Options"),
    "placer.placed": ("Placement", "JobPlacement"),
    "placer.decision": ("Decision",),
    "placer.explanation": ("Explanation",),
    "placer.fleets": ("fleet", "Machine", "Fleet"),
    "placer.pricing": ("Prediction",),
    "placer.profile": ("Profile",),
    "placer.workload": ("Workload", "Job", "Part", "Loading"),
}


def __getattr__(name: str) -> Any:
    """Load a public name on first use (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module 'placer' has no attribute {name!r}")
    home = next((home for home, names in _HOMES.items() if name in names), "placer.errors")
    with without_collection():
        value = getattr(importlib.import_module(home), name)
    # A submodule may carry a public name's own name (placer.explain is the function): set it last, so that it wins.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext placer``: the models of a notebook are watched, and ``%placer`` compares what they cost where."""
    importlib.import_module("placer.run").load_magic(shell)


def unload_ipython_extension(shell: Any) -> None:
    """``%unload_ext placer``: nothing is watched any more."""
    importlib.import_module("placer.run").unload_magic(shell)

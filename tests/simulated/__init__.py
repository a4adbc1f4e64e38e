"""A simulated accelerator: torch device ``sim``, with a queue, set costs and limited memory. For tests only.

Tensors hold their numbers in host memory and are computed there, so results are right; time is kept by a clock that
the tests set. torch loads the device as it loads any backend that is not part of it: by an entry point (see
``entry_point.py``), so that child processes have it too. What it costs is ``spec.SPEC``; none of it is a real device's.
"""

from __future__ import annotations

# First: torch imports these modules when it loads its backends, which must not happen halfway through one of them.
import torch  # noqa: F401

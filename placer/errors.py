"""Every exception placer raises on purpose.

``except placer.PlacerError`` is enough for all of them.
Wrong arguments raise ``ValueError`` or ``TypeError`` at once, like any Python function.
"""

from __future__ import annotations


class PlacerError(Exception):
    """Base of every error placer raises on purpose."""


class ProfileError(PlacerError):
    """A machine profile cannot be used."""


class ProfileMissing(ProfileError):
    """There is no profile where one was looked for."""


class ProfileDamaged(ProfileError):
    """The file is not a readable profile."""


class ProfileTooNew(ProfileError):
    """The profile was written by a newer placer than this one."""


class ProfileTooOld(ProfileError):
    """The profile was written in a schema that is no longer read."""


class ProfileStale(ProfileError):
    """The machine is no longer the one that was calibrated."""


class UnknownGPU(ProfileError):
    """No GPU of the catalog has that name."""


class UnknownCPU(ProfileError):
    """No CPU of the catalog has that name."""


class TraceError(PlacerError):
    """The workload could not be traced."""


class CalibrationError(PlacerError):
    """A measurement could not be taken."""


class TimerError(CalibrationError):
    """The clock stands still, or the timings never settle."""


class TargetError(PlacerError):
    """A command line target could not be imported or is not a model."""


class PlacerWarning(UserWarning):
    """choose() fell back to the default rule, the GPU if there is one and the model fits, or knows less than usual."""


def first_line(error: BaseException) -> str:
    """What an error says, as far as there is room for it within another message."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else "no message"


#: What torch says of it: its allocators on each system, and those of cuBLAS and cuDNN.
_OUT_OF_MEMORY = ("out of memory", "allocate memory", "not enough memory", "ALLOC_FAILED")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether torch had no memory left, on any device: most have no class of error of their own for that."""
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"  # torch's own
    return named or any(words in str(error) for words in _OUT_OF_MEMORY)

"""Values out of a JSON document, each checked for type and range, with the place named in the error.

Many numbers, listed or packed, are checked in bulk and come back as numpy arrays.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


class UnfitError(ValueError):
    """A value is not what the schema asks for; says where in the document."""


def json_object(value: Any, where: str, keys: tuple[str, ...] | None) -> dict[str, Any]:
    """A JSON object with exactly these keys (None: any), all of them short printable text."""
    if not isinstance(value, dict):
        raise UnfitError(f"{where}: expected an object, not {brief(value)}")
    if keys is not None and value.keys() != set(keys):
        missing = ", ".join(sorted(set(keys) - value.keys()))
        unknown = ", ".join(sorted(brief(key) for key in value.keys() - set(keys)))
        complaints = (missing and f"no {missing}", unknown and f"unknown {unknown}")
        raise UnfitError(f"{where}: {'; '.join(filter(None, complaints))}")
    for key in value:
        text(key, f"a key of {where}")
    return value


def json_list(value: Any, where: str) -> list[Any]:
    """A JSON list."""
    if not isinstance(value, list):
        raise UnfitError(f"{where}: expected a list, not {brief(value)}")
    return value


def text(value: Any, where: str) -> str:
    """One printable line of at most 1000 characters."""
    # Printable, because names end up on terminals: no escape sequences, no lone surrogates.
    if not isinstance(value, str) or len(value) > 1000 or not value.isprintable():
        raise UnfitError(f"{where}: expected a line of text, not {brief(value)}")
    return value


def integer(value: Any, where: str, low: int) -> int:
    """A whole number of at least ``low``."""
    if type(value) is not int or not low <= value <= 2**53:
        raise UnfitError(f"{where}: expected a whole number of at least {low}, not {brief(value)}")
    return value


def number(value: Any, where: str, low: float = -np.inf) -> float:
    """A finite number of at least ``low``."""
    # As a float first: numpy has no answer about whole numbers beyond 64 bits.
    found = float(value) if type(value) in (int, float) and abs(value) <= 1e300 else math.nan
    if not (found >= low and math.isfinite(found)):
        bound = "" if low == -np.inf else f" of at least {low:g}"
        raise UnfitError(f"{where}: expected a finite number{bound}, not {brief(value)}")
    return found


def numbers(value: Any, where: str, low: float = -np.inf) -> dict[str, float]:
    """An object whose values are finite numbers of at least ``low``."""
    return {key: number(item, f"{where}.{key}", low) for key, item in json_object(value, where, None).items()}


def vector(value: Any, where: str, length: int) -> Array:
    """A float array of ``length`` finite numbers."""
    items = json_list(value, where)
    if len(items) != length:
        raise UnfitError(f"{where}: expected {length} numbers, found {len(items)}")
    return _finite(items, where)


def _finite(items: list[Any], where: str) -> Array:
    # The types first: numpy would read "1.5" and true as numbers.
    if not set(map(type, items)) <= {int, float}:
        wrong = next(item for item in items if type(item) not in (int, float))
        raise UnfitError(f"{where}: expected numbers, found {brief(wrong)}")
    try:
        array = np.array(items, dtype=np.float64)
    except OverflowError:
        raise UnfitError(f"{where}: a number is too large") from None
    if not np.isfinite(array).all():
        raise UnfitError(f"{where}: a number is too large")
    return array


def brief(value: Any) -> str:
    """What was found, short and printable."""
    shown = ascii(value) if isinstance(value, (str, int, float, bool)) or value is None else type(value).__name__
    return shown if len(shown) <= 60 else shown[:57] + "..."

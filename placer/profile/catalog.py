"""What the catalogs of GPUs and of CPUs share: their files, and how the names in them are read."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

_MARKS = re.compile(r"\((?:r|tm|c)\)|[®™©]")
#: How many names an error suggests, and how alike they are at least (1: the same).
_SUGGESTED, _ALIKE = 5, 0.5


@cache
def read_catalog(file: str, *tables: str) -> Mapping[str, Any]:
    """The document of a catalog, with the citations of each row of its ``tables`` spelt out."""
    document: dict[str, Any] = json.loads((Path(__file__).parent / "catalog" / file).read_text(encoding="utf-8"))
    for table in tables:
        for row in document[table]:
            row["source"] = "; ".join(document["sources"][key] for key in row["source"])
    return document


def plain(name: str) -> str:
    """A name in lower-case words and numbers, one blank between them, without trade marks."""
    return re.sub(r"[^a-z0-9]+", " ", _MARKS.sub(" ", name.lower())).strip()


def makers(name: str, words: Mapping[str, Any]) -> frozenset[str]:
    """Who made the device, by the words of a name; ``words`` are those of its catalog."""
    return frozenset(words["makers"][word] for word in plain(name).split() if word in words["makers"])


def closest(spelling: str, names: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Names of a catalog whose spelling looks like this one, the most alike first; of those that share it, every one.

    ``names`` are the catalog's, by how ``spelling`` would spell them.
    """
    alike = difflib.get_close_matches(spelling, names, n=_SUGGESTED, cutoff=_ALIKE)
    return tuple(dict.fromkeys(name for spelt in alike for name in names[spelt]))[:_SUGGESTED]

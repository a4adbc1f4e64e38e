"""What the catalogs of GPUs and of CPUs share: their files, and how the names in them are read."""

from __future__ import annotations

import difflib
import itertools
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_MARKS = re.compile(r"\((?:r|tm|c)\)|[®™©]")
#: How many names an error suggests, and how alike they are at least (1: the same).
_SUGGESTED, _ALIKE = 5, 0.5


def read_catalog(path: Path, *tables: str) -> dict[str, Any]:
    """The document of a catalog, with the citations of each row of its ``tables`` spelt out."""
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for row in itertools.chain.from_iterable(document[table] for table in tables):
        row["source"] = "; ".join(document["sources"][key] for key in row["source"])
    return document


def plain(name: str) -> str:
    """A name in lower-case words and numbers, one blank between them, without trade marks."""
    return re.sub(r"[^a-z0-9]+", " ", _MARKS.sub(" ", name.lower())).strip()


def closest(spelling: str, names: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Names of a catalog whose spelling looks like this one, the most alike first; of those that share it, every one.

    ``names`` are the catalog's, by how ``spelling`` would spell them.
    """
    alike = difflib.get_close_matches(spelling, names, n=_SUGGESTED, cutoff=_ALIKE)
    return tuple(dict.fromkeys(name for spelt in alike for name in names[spelt]))[:_SUGGESTED]

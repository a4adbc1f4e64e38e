"""A file of JSON, one line a result, that is only appended to: what is there when a run ends is kept, and not repeated.

Every line has what was asked under ``of``, and what was found, or an ``error``, beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

#: What was asked: values that JSON has.
Question = Mapping[str, object]


class Lines:
    """The results in a file. A question that has an answer there counts as known; one that has an error does not."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known = {_key(line["of"]) for line in read(path) if "error" not in line}

    def __contains__(self, question: Question) -> bool:
        return _key(question) in self._known

    def add(self, question: Question, **found: Any) -> None:
        self._append({"of": dict(question), **found})
        self._known.add(_key(question))

    def fail(self, question: Question, error: str) -> None:
        self._append({"of": dict(question), "error": error})

    def _append(self, line: Mapping[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, default=str) + "\n")


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The sound lines of a file, none if there is no file; a line that was cut short is left out."""
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return
    for text in content.splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and isinstance(line.get("of"), dict):
            yield line


def _key(question: Mapping[str, Any]) -> str:
    return json.dumps(dict(question), sort_keys=True)

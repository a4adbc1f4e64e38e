"""The code and its pages speak in the words of the field."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Private words, each with the one to use instead.
PRIVATE = {
    "pulse": "speed probe",
    "beats?": "reading of the speed probe",
    "sittings?": "measurement session",
    "strangers?": "machine of another class",
    "kin": "machine of the same class",
    "crowd(ed)?": "reuse distance",
    "displaced": "evicted",
    "restless": "contended",
}
#: What was tried keeps the words of its day, and the folder of old measurement sessions its name.
ALLOWED = {"docs/dev/findings.md", "calibration/make_reference.py"}
#: Where people read, by folder and suffix.
READ = {"placer": (".py", ".json", ".js", ".css", ".j2"), "calibration": (".py", ".json"), "docs": (".md", ".py")}


def test_private_words_are_retired() -> None:
    words = re.compile(rf"\b({'|'.join(PRIVATE)})\b", re.IGNORECASE)
    found = {
        f"{page}: {match[0]}"
        for folder, suffixes in READ.items()
        for path in (ROOT / folder).rglob("*")
        if path.suffix in suffixes and (page := path.relative_to(ROOT).as_posix()) not in ALLOWED
        for match in words.finditer(path.read_text(encoding="utf-8"))
    }
    assert not found

"""The code and its pages speak in the words of the field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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
#: What was tried keeps the words of its day; old profiles, and the folder of old measurement sessions, their names.
ALLOWED = {"docs/findings.md", "placer/profile/former_names.py", "calibration/make_reference.py"}
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for folder, suffixes in (("placer", (".py", ".json", ".js", ".css", ".j2")), ("calibration", (".py", ".json")),
                             ("docs", (".md", ".py")))
    for path in (ROOT / folder).rglob("*")
    if path.suffix in suffixes
)  # fmt: skip


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ALLOWED])
def test_private_words_are_retired(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    found = {word: instead for word, instead in PRIVATE.items() if re.search(rf"\b{word}\b", text, re.IGNORECASE)}
    assert not found

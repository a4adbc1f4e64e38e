"""Damaged profiles without end: bytes changed, cut, doubled, and values of the document exchanged."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

from placer.errors import ProfileError
from placer.profile_schema import decode, encode

_ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2**53, 2**63, 10**400, 0.5, -0.0, 1e-320, 1e300, 1e999, -1e999, "", "cpu", "\x00",
    "\ud800", "x" * 1001, "../../etc/passwd", [], [[]], [1], {}, {"a": 1}, {"": []}, [0] * 50,
]  # fmt: skip
_TOKENS = [
    b"[", b"]", b"{", b"}", b'"', b"\\", b",", b":", b"NaN", b"Infinity", b"1e999", b"\xff", b"\x00", b"-", b"9" * 400,
]  # fmt: skip


class Fuzzer:
    """Feeds the loader with what becomes of one valid profile; the same seed gives the same inputs."""

    def __init__(self, content: bytes, seed: int) -> None:
        self.content = content
        self.document = json.loads(content)
        self.random = random.Random(seed)

    def once(self) -> bool:
        """One input. True if it was refused, as a ProfileError; what loads is a profile that can be saved."""
        data = self._document() if self.random.random() < 0.5 else self._bytes()
        try:
            loaded = decode(data, "fuzzed", samples=self.random.random() < 0.5)
        except ProfileError:
            return True
        decode(encode(loaded), "saved again")
        return False

    def _bytes(self) -> bytes:
        data = bytearray(self.content)
        for _ in range(self.random.choice((1, 1, 1, 2, 8))):
            at = self.random.randrange(len(data) + 1)
            end = min(at + self.random.choice((0, 1, 1, 4, 64)), len(data))
            what = self.random.random()
            if what < 0.3:
                data[at:end] = self.random.choice(_TOKENS)
            elif what < 0.5:
                data[at:end] = self.random.randbytes(end - at)
            elif what < 0.7:
                del data[at:end]
            elif what < 0.9:
                data[at:at] = data[at:end] * self.random.choice((1, 2, 10))
            else:
                del data[at:]
        return bytes(data)

    def _document(self) -> bytes:
        document = copy.deepcopy(self.document)
        for _ in range(self.random.choice((1, 1, 2, 5))):
            self._exchange(document)
        return json.dumps(document).encode()

    def _exchange(self, target: Any) -> None:
        while True:
            keys = list(target) if isinstance(target, dict) else list(range(len(target)))
            if not keys:
                return
            key = self.random.choice(keys)
            inner = target[key]
            if isinstance(inner, (dict, list)) and inner and self.random.random() < 0.8:
                target = inner
                continue
            what = self.random.random()
            if what < 0.7:
                target[key] = copy.deepcopy(self.random.choice(_ODD))
            elif what < 0.85:
                del target[key]
            elif isinstance(target, list):
                target.append(copy.deepcopy(inner))
            else:
                target[str(key) + "x"] = inner
            return

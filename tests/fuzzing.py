"""Damaged profiles without end, by hypothesis: bytes changed, cut, doubled, and values of the document exchanged."""

from __future__ import annotations

import copy
import json
import time
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st

from placer.errors import ProfileError
from placer.profile.schema import decode, encode

_ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2**53, 2**63, 10**400, 0.5, -0.0, 1e-320, 1e300, 1e999, -1e999, "", "cpu", "\x00",
    "\ud800", "x" * 1001, "../../etc/passwd", [], [[]], [1], {}, {"a": 1}, {"": []}, [0] * 50,
]  # fmt: skip
_TOKENS = [
    b"[", b"]", b"{", b"}", b'"', b"\\", b",", b":", b"NaN", b"Infinity", b"1e999", b"\xff", b"\x00", b"-", b"9" * 400,
]  # fmt: skip
#: Inputs per run of hypothesis, which remembers all that it tried: a million at once would be a measure of its memory.
_PER_RUN = 5000


@dataclass
class Outcome:
    """What became of the inputs. ``slowest`` is in seconds of processor time, for one input."""

    inputs: int = 0
    refused: int = 0
    slowest: float = 0.0


def fuzz(content: bytes, inputs: int, outcome: Outcome, *, first_seed: int = 0) -> None:
    """Feed the loader with at least ``inputs`` things that may become of one valid profile, and count in ``outcome``.

    What is refused is refused as a ProfileError; what loads is a profile that can be saved. Anything else is raised:
    hypothesis, which makes every choice, shows the simplest input that does it.
    """

    @settings(
        max_examples=min(inputs, _PER_RUN),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    @given(random=st.randoms(use_true_random=False))
    def once(random: Random) -> None:
        data = _damaged(content, random)
        note(repr(data))
        start = time.process_time()
        try:
            loaded = decode(data, "fuzzed")
        except ProfileError:
            outcome.refused += 1
        else:
            decode(encode(loaded), "saved again")
        outcome.inputs += 1
        outcome.slowest = max(outcome.slowest, time.process_time() - start)

    end, number = outcome.inputs + inputs, first_seed
    while outcome.inputs < end:
        seed(number)(once)()
        number += 1


def _damaged(content: bytes, random: Random) -> bytes:
    return _changed_document(content, random) if random.randrange(2) else _changed_bytes(content, random)


def _changed_bytes(content: bytes, random: Random) -> bytes:
    data = bytearray(content)
    for _ in range(random.choice((1, 1, 1, 2, 8))):
        at = random.randrange(len(data) + 1)
        end = min(at + random.choice((0, 1, 1, 4, 64)), len(data))
        what = random.choice(("token", "token", "noise", "delete", "double", "cut"))
        if what == "token":
            data[at:end] = random.choice(_TOKENS)
        elif what == "noise":
            data[at:end] = random.randbytes(end - at)
        elif what == "delete":
            del data[at:end]
        elif what == "double":
            data[at:at] = data[at:end] * random.choice((1, 2, 10))
        else:
            del data[at:]
    return bytes(data)


def _changed_document(content: bytes, random: Random) -> bytes:
    document = json.loads(content)
    for _ in range(random.choice((1, 1, 2, 5))):
        _exchange(document, random)
    return json.dumps(document).encode()


def _exchange(target: Any, random: Random) -> None:
    while True:
        keys = list(target) if isinstance(target, dict) else list(range(len(target)))
        if not keys:
            return
        key = random.choice(keys)
        inner = target[key]
        if isinstance(inner, (dict, list)) and inner and random.randrange(5):
            target = inner
            continue
        what = random.choice(("odd", "odd", "odd", "odd", "delete", "add"))
        if what == "odd":
            target[key] = copy.deepcopy(random.choice(_ODD))
        elif what == "delete":
            del target[key]
        elif isinstance(target, list):
            target.append(copy.deepcopy(inner))
        else:
            target[str(key) + "x"] = inner
        return

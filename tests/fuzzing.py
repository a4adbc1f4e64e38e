"""Damaged profiles without end, by hypothesis: bytes changed, cut, doubled, and values of the document exchanged."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
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
_LEFT_OUT, _TWICE = object(), object()
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
    @given(data=changed_bytes(content) | changed_document(content))
    def once(data: bytes) -> None:
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


@st.composite
def changed_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """Stretches exchanged for others, left out, doubled, or all that follows cut off."""
    data = bytearray(content)
    for _ in range(draw(st.sampled_from((1, 1, 1, 2, 8)))):
        at = draw(st.integers(0, len(data)))
        end = min(at + draw(st.sampled_from((0, 1, 1, 4, 64))), len(data))
        again = bytes(data[at:end]) * 10
        what = draw(st.sampled_from((*_TOKENS, b"", again)) | st.binary(max_size=64) | st.none())
        if what is None:
            del data[at:]
        else:
            data[at:end] = what
    return bytes(data)


@st.composite
def changed_document(draw: st.DrawFn, content: bytes) -> bytes:
    """Values of the document exchanged, left out, or there twice."""
    document = json.loads(content)
    for _ in range(draw(st.sampled_from((1, 1, 2, 5)))):
        places = list(_places(document))
        if not places:
            break
        target, key = draw(st.sampled_from(places))
        what = draw(st.sampled_from((*_ODD, _LEFT_OUT, _TWICE)))
        if what is _LEFT_OUT:
            del target[key]
        elif what is not _TWICE:
            target[key] = copy.deepcopy(what)
        elif isinstance(target, list):
            target.append(copy.deepcopy(target[key]))
        else:
            target[f"{key}x"] = copy.deepcopy(target[key])
    return json.dumps(document).encode()


def _places(target: Any) -> Iterator[tuple[Any, Any]]:
    """Every list and object of a document, with each of its keys."""
    for key in list(target) if isinstance(target, dict) else range(len(target)):
        yield target, key
        if isinstance(target[key], (dict, list)):
            yield from _places(target[key])

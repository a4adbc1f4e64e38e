"""Profiles of a cluster's machines, a file for each kind in placer's data folder, and which node is of which kind."""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from placer import profile as profiles
from placer.errors import ProfileError
from placer.profile import Profile

#: What makes another kind of machine. Threads are not among it: Ray sets them by the CPUs that a task asks for.
_FIELDS = ("cpu", "cpu_version", "cpu_instructions", "cores", "torch")
#: Bytes that a profile is unpacked to at most: it has a few MB.
_LARGEST = 2**26
#: Nodes that are remembered, the latest: those of a large cluster over some weeks.
_NODES = 20_000


def kind_of(fingerprint: Mapping[str, Any]) -> str:
    """A name for machines that are alike: the same CPU, cores, memory, accelerators and torch.

    Memory is rounded to two digits: nodes of one type differ by some MB.
    """
    accelerators = fingerprint.get("accelerators") or ()
    cards = sorted((str(a.get("name")), _memory(a.get("memory_bytes")), str(a.get("driver"))) for a in accelerators)
    facts = [*(str(fingerprint.get(field)) for field in _FIELDS), _memory(fingerprint.get("memory_bytes")), cards]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def folder() -> Path:
    """Where the profiles of a cluster's machines are kept."""
    return profiles.data_home() / "fleet"


def keep(kind: str, data: bytes, *, newest: bool = False) -> None:
    """Keep a profile that a node sent (its file, compressed) under its kind: that with the most devices, and of
    these that which was measured for longest.

    ``newest``: this one, whatever there was.

    Raises ProfileError for what is no profile.
    """
    arriving = folder() / f"{kind}.{os.getpid()}.arriving"
    try:
        profiles.replace_file(arriving, zlib.decompressobj().decompress(data, _LARGEST))
        found = profiles.load(arriving)
        before = kept(kind)
        if newest or before is None or _worth(found) >= _worth(before):
            profiles.save(found, folder() / f"{kind}.json")
    except (OSError, zlib.error) as error:
        raise ProfileError(f"cannot keep its profile in {folder()}: {error}") from error
    finally:
        arriving.unlink(missing_ok=True)


def _worth(profile: Profile) -> tuple[int, float]:
    return len(profile.devices()), profile.seconds


def kept(kind: str) -> Profile | None:
    """The profile of a kind, without its samples; None where there is none that can be read."""
    path = folder() / f"{kind}.json"
    try:
        return profiles.load_cached(path) if path.is_file() else None
    except ProfileError:
        return None


def to_measure(found: Mapping[str, str], force: bool = False) -> list[str]:
    """One node for each kind of which no profile is kept; of every kind, where they are to be measured again.

    ``found`` are the kinds of nodes by their ids.
    """
    first: dict[str, str] = {}
    for node, kind in found.items():
        first.setdefault(kind, node)
    return [node for kind, node in first.items() if force or kept(kind) is None]


def kinds() -> dict[str, str]:
    """The kind of every node that was asked, by the node's id."""
    try:
        read = json.loads((folder() / "nodes.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(k): str(v) for k, v in read.items()} if isinstance(read, dict) else {}


def remember(found: Mapping[str, str]) -> None:
    """Keep the kinds of nodes, by their ids. Raises ProfileError if that cannot be written."""
    if not found:
        return
    known = [(node, kind) for node, kind in kinds().items() if node not in found]
    latest = dict([*known, *found.items()][-_NODES:])
    try:
        profiles.replace_file(folder() / "nodes.json", json.dumps(latest, indent=0).encode())
    except OSError as error:
        raise ProfileError(f"cannot write {folder() / 'nodes.json'}: {error}; set PLACER_HOME") from error


def described(profile: Profile) -> str:
    """A kind in words: its accelerators and its CPU."""
    facts = profile.fingerprint
    cards = [str(a.get("name")) for a in facts.get("accelerators") or ()]
    shown = [f"{cards.count(card)}x {card}" if cards.count(card) > 1 else card for card in dict.fromkeys(cards)]
    cores = facts.get("cores")
    return " + ".join([*shown, f"{facts.get('cpu')}, {cores} core{'' if cores == 1 else 's'}"])


def _memory(size: Any) -> str:
    return f"{size / 2**30:.2g}" if isinstance(size, (int, float)) else "unknown"

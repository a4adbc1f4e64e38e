"""Bytes -> seconds of a copy between host and device, as a step makes it.

A step copies a batch that other work has driven from the caches, and brings its result home into a new tensor. On an
H100 and two H200s that takes 1.7 to 2.8 times what copying one warm buffer again and again does, and is no straight
line: some 64 KB are staged, and from 32 MB on every new tensor gets fresh pages. So a calibration measures a few sizes
that way. Other copies, from pinned memory or as a catalog knows them, are a start and a bandwidth.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

#: Bytes of the copies that a calibration measures, of memory that is not pinned.
SIZES = (4 << 10, 64 << 10, 512 << 10, 4 << 20, 64 << 20)
#: Bytes from which on glibc maps every tensor anew (DEFAULT_MMAP_THRESHOLD_MAX in malloc.c): a copy of as many is
#: a share of one of the largest size, and a smaller one is not.
FRESH = 32 << 20
#: What copies of a step take where nobody timed any: on the hosts of the records of NVIDIA GPUs (calibration/records)
#: so many seconds more from 64 KB on than at once, at this rate at the most, and at that one into fresh pages. Of what
#: each two of the three records are best fitted by, the third is no worse.
STAGED_BYTES, STAGED_SECONDS, COLD_RATE, FRESH_RATE = 64 << 10, 10e-6, 8.5e9, 1.4e9


def copy_seconds(sizes: Sequence[int], rates: Mapping[str, float], direction: str, memory: str) -> float:
    """Seconds to copy tensors of ``sizes`` bytes one after the other; 0.0 where nothing is known of such copies.

    ``rates`` holds ``copy/<direction>/<memory>/``: the seconds of copies of ``SIZES`` bytes, as far as the device had
    room for them, or ``seconds_per_tensor`` and ``bytes_per_second``.
    """
    prefix = f"copy/{direction}/{memory}"
    measured = {size: rates[f"{prefix}/{size}"] for size in SIZES if f"{prefix}/{size}" in rates}
    if len(measured) > 1:
        return sum(_interpolated(size, measured) for size in sizes)
    per_tensor = rates.get(f"{prefix}/seconds_per_tensor", 0.0)
    bandwidth = rates.get(f"{prefix}/bytes_per_second", 0.0)
    return sum(per_tensor + (size / bandwidth if bandwidth else 0.0) for size in sizes)


def _interpolated(size: int, measured: Mapping[int, float]) -> float:
    """Seconds of one copy by those ``measured``: on straight lines, the last of which goes on up to ``FRESH`` bytes."""
    largest = max(measured)
    if size >= FRESH <= largest:
        return measured[largest] * size / largest
    lines = list(itertools.pairwise(sorted(point for point in measured.items() if point[0] < FRESH)))
    line = next((line for line in lines if size <= line[1][0]), lines[-1])
    (below, shorter), (above, longer) = line
    per_byte = max(longer - shorter, 0.0) / (above - below)
    return shorter + per_byte * max(size - below, 0)


def copies_of_steps(direction: str, start: float, rate: float) -> dict[str, float]:
    """The rates of copies of pageable memory as steps make them, where others take ``start`` seconds at ``rate``.

    ``rate`` is in bytes per second.
    """
    found = {}
    for size in SIZES:
        fresh = direction == "d2h" and size >= FRESH
        reached = min(rate, FRESH_RATE if fresh else COLD_RATE)
        seconds = start + STAGED_SECONDS * min(size / STAGED_BYTES, 1.0) + size / reached
        found[f"copy/{direction}/pageable/{size}"] = seconds
    return found

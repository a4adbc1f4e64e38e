"""What copies between host and GPU take: seconds per tensor, and bytes per second by the generation of PCIe."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placer.profile import DataSheet

#: Bytes per second of pinned and of pageable memory over 16 lanes, by generation of PCIe. Pinned: bandwidthTest on
#: P100 and V100 (3), A100 (4), an unnamed PCIe 5 GPU. Pageable: traces of V100 (7 to 11 GB/s), A100 (6) and H100
#: (11 to 18).
_PCIE = {1: (3e9, 2.5e9), 2: (6e9, 4e9), 3: (12e9, 6.5e9), 4: (25e9, 8e9), 5: (46e9, 13e9), 6: (80e9, 14e9)}
#: The same of a chip-to-chip link, where the sheet names no PCIe, and of memory that host and GPU share.
_LINK, _SHARED = (200e9, 30e9), (60e9, 40e9)
#: Seconds to begin a copy: pageable (staged, and the host waits) to the GPU and from it, pinned, and in shared memory.
_PAGEABLE_IN, _PAGEABLE_OUT, _PINNED, _SHARED_START = 75e-6, 20e-6, 7e-6, 10e-6
_LANES = 16.0


def copy_rates(sheet: DataSheet) -> dict[str, float]:
    """The rates ``copy/<direction>/<memory>/...`` of a GPU, in seconds and bytes per second."""
    if sheet.integrated:
        pinned, pageable = _SHARED
    elif sheet.pcie_gen:
        pinned, pageable = _PCIE[min(max(sheet.pcie_gen, 1), 6)]
        share = min((sheet.pcie_lanes or _LANES) / _LANES, 1.0)
        pinned, pageable = pinned * share, min(pageable, pinned * share)
    else:
        pinned, pageable = _LINK
    starts = {
        "h2d": (_SHARED_START if sheet.integrated else _PAGEABLE_IN, _PINNED),
        "d2h": (_SHARED_START if sheet.integrated else _PAGEABLE_OUT, _PINNED),
    }
    rates = {}
    for direction, (slow, fast) in starts.items():
        for memory, start, bandwidth in (("pageable", slow, pageable), ("pinned", fast, pinned)):
            rates[f"copy/{direction}/{memory}/seconds_per_tensor"] = start
            rates[f"copy/{direction}/{memory}/bytes_per_second"] = bandwidth
    return rates

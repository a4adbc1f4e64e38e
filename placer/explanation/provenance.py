"""How a reader tells what a device's numbers rest on: marks beside its name, and a line for each mark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from placer.explanation.rows import DeviceRow

#: Marks beside the names of devices that placer did not measure. A calibrated device has none.
MARKS = {"published": "†", "data sheet": "‡"}
_MEANING = {
    "published": "from measurements that others published of this GPU, not from a calibration.",
    "data sheet": "from the GPU's data sheet and published measurements of other GPUs: nobody's timings of this one.",
}


def marked(name: str, provenance: str) -> str:
    """The name of a device with the mark of what its numbers rest on."""
    mark = MARKS.get(provenance)
    return f"{name} {mark}" if mark else name


def headings(devices: Mapping[str, DeviceRow]) -> dict[str, str]:
    """What each device is called above its numbers."""
    return {name: marked(name, row.provenance) for name, row in devices.items()}


def legend(provenances: Iterable[str]) -> list[str]:
    """One line for each mark that stands somewhere."""
    found = set(provenances)
    return [f"{MARKS[name]} {meaning}" for name, meaning in _MEANING.items() if name in found]


def all_calibrated(devices: Mapping[str, DeviceRow]) -> bool:
    """Whether placer measured every device."""
    return all(row.provenance == "calibrated" for row in devices.values())

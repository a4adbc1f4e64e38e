"""Which GPU a name means: ``4090``, ``NVIDIA A100-SXM4-40GB`` and ``a100 80gb`` are how people and drivers write."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from placer.profile.data_sheet import DataSheet

#: Words that never tell two GPUs apart.
_NOISE = frozenset(
    ("amd", "apple", "corporation", "design", "geforce", "generation", "gpu", "graphics", "instinct", "intel", "jetson",
     "lovelace", "nvidia", "radeon", "tesla", "with")
)  # fmt: skip
#: Other words for one thing.
_SAME = {"mobile": "laptop", "notebook": "laptop"}
#: May be left out, but tells GPUs apart where it is given: the Quadro RTX 6000 is not the RTX 6000 Ada.
_OPTIONAL = "quadro"
#: What people leave out of the names of consumer cards: ``4090``, ``7900 XTX``, ``A770``.
_SERIES = re.compile(r"^(?:rtx|gtx|rx|arc)(?=[ab]?\d{3,4}(?!\d))")
_CONSUMER = re.compile(r"\b(?:geforce|radeon|arc)\b", re.IGNORECASE)
_MARKS = re.compile(r"\((?:r|tm|c)\)|[®™©]")
#: ``lspci`` writes the chip, then the name in brackets.
_BRACKETED = re.compile(r"\[([^\[\]]+)\]")
_MEMORY = re.compile(r"(?<![a-z0-9])(\d{1,4}) ?(?:gb|gib|g)(?![a-z0-9])")
#: How many names an error suggests, and how alike they are at least (1: the same).
_SUGGESTED, _ALIKE = 5, 0.5


@dataclass(frozen=True, slots=True)
class _Parts:
    """A name without noise. ``core`` is what remains without memory sizes and architectures, which narrow it down."""

    whole: str
    core: str
    memory_gb: tuple[int, ...]
    architectures: tuple[str, ...]

    def fits(self, sheet: DataSheet) -> bool:
        # Of memory that is shared with the host, the sheet has the most there is, unless it is one size of several.
        least = 0.0 if sheet.integrated and not _MEMORY.search(sheet.name.lower()) else sheet.memory_gb - 0.5
        sizes = all(least <= size <= sheet.memory_gb + 0.5 for size in self.memory_gb)
        return sizes and all(word == sheet.architecture for word in self.architectures)


class Names:
    """The names of a catalog. Of GPUs that share a name, the one that comes first in the catalog has it."""

    def __init__(self, sheets: Iterable[DataSheet]) -> None:
        sheets = tuple(sheets)
        self._architectures = frozenset(sheet.architecture for sheet in sheets)
        self._by_whole: dict[str, DataSheet] = {}
        self._by_core: dict[str, list[DataSheet]] = {}
        for sheet in sheets:
            for name in (sheet.name, *sheet.aliases):
                self._add(name, sheet)

    def find(self, name: str) -> str | None:
        """The catalog name of the GPU called ``name``; None where there is none."""
        for text in (name, *_BRACKETED.findall(name)):
            for spelling in (text, _without(_OPTIONAL, text)):
                parts = self._parts(spelling)
                if parts.whole in self._by_whole:
                    return self._by_whole[parts.whole].name
                for sheet in self._by_core.get(parts.core, ()):
                    if parts.fits(sheet):
                        return sheet.name
        return None

    def closest(self, name: str) -> tuple[str, ...]:
        """Catalog names that look like ``name``, the most alike first; of names that GPUs share, every one."""
        parts = self._parts(name)
        alike = difflib.get_close_matches(parts.core, self._by_core, n=_SUGGESTED, cutoff=_ALIKE)
        names = dict.fromkeys(sheet.name for core in alike for sheet in self._by_core[core])
        return tuple(names)[:_SUGGESTED]

    def _add(self, name: str, sheet: DataSheet) -> None:
        for text in (name, _without(_OPTIONAL, name)):
            parts = self._parts(text)
            series = _SERIES.match(parts.whole) if _CONSUMER.search(sheet.name) else None
            for dropped in ("", series[0]) if series else ("",):
                self._by_whole.setdefault(parts.whole.removeprefix(dropped), sheet)
                sharing = self._by_core.setdefault(parts.core.removeprefix(dropped), [])
                if sheet not in sharing:
                    sharing.append(sheet)

    def _parts(self, name: str) -> _Parts:
        text = re.sub(r"[^a-z0-9]+", " ", _MARKS.sub(" ", name.lower()))
        sizes = tuple(int(size) for size in _MEMORY.findall(text))
        words = [_SAME.get(word, word) for word in _MEMORY.sub(" ", text).split() if word not in _NOISE]
        core = "".join(word for word in words if word not in self._architectures)
        whole = "".join((*words, *(f"{size}gb" for size in sizes)))
        return _Parts(whole, core, sizes, tuple(word for word in words if word in self._architectures))


def _without(word: str, name: str) -> str:
    return re.sub(rf"\b{word}\b", " ", name, flags=re.IGNORECASE)

"""``placer gpus``: the catalog of GPUs, and the data sheet of one of them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from placer.cli.output import result_options, write
from placer.sections import Fact, Section, render
from placer.units import three_digits

if TYPE_CHECKING:
    from placer.profile import DataSheet

#: Version of the JSON; keys may be added to it.
_SCHEMA = 1
_COLUMNS = ("name", "year", "SMs", "float32", "tensor", "GB/s", "L2 MB", "GB", "knowledge")
#: Rates of one sheet: what it says, and the field.
_RATES = {
    "float32": "float32_tflops",
    "float64": "float64_tflops",
    "float16": "float16_tflops",
    "tensor float16": "tensor_float16_tflops",
    "tensor bfloat16": "tensor_bfloat16_tflops",
    "tensor TF32": "tensor_tf32_tflops",
    "matrix float32": "matrix_float32_tflops",
}
_UNITS = "Rates in TFLOP/s; tensor: float16 products that add up in float32. One GPU: placer gpus NAME"
#: A GPU is one line, for grep, however wide.
_NO_LIMIT = 10_000


@click.command("gpus")
@click.argument("words", metavar="[NAME]", nargs=-1)
@result_options("text", "json")
def command(words: tuple[str, ...], form: str, output: str | None) -> None:
    """Show what is known of the GPUs in the catalog.

    Of all of them, or of the one called NAME: "RTX 4090", A100, "Tesla T4".
    """
    from placer.profile import find_gpu, gpus

    sheets = (find_gpu(" ".join(words)),) if words else tuple(gpus().values())
    write(Catalog(sheets, whole=bool(words)), form, output)


@dataclass(frozen=True)
class Catalog:
    """GPUs by their data sheets: a line for each, or the ``whole`` sheet of the only one."""

    sheets: tuple[DataSheet, ...]
    whole: bool

    def to_json(self) -> str:
        """Every field of the sheets, and how well they are known."""
        from placer.profile import knowledge

        rows = [{**asdict(sheet), "knowledge": knowledge(sheet.name)} for sheet in self.sheets]
        return json.dumps({"schema": _SCHEMA, "gpus": rows}, indent=2) + "\n"

    def to_text(self, *, width: int, color: bool) -> str:
        """A table, or the facts of one GPU."""
        from placer.profile import knowledge

        if self.whole:
            (sheet,) = self.sheets
            section = Section(sheet.name, facts=_facts(sheet, knowledge(sheet.name)))
            return render([section], width=width, color=color)
        rows = []
        for sheet in self.sheets:
            rates = (sheet.float32_tflops, sheet.tensor_float16_tflops, sheet.bandwidth_gbps)
            numbers = map(_number, (*rates, sheet.l2_mb, sheet.memory_gb))
            rows.append([sheet.name, str(sheet.year), str(sheet.sms), *numbers, knowledge(sheet.name)])
        table = Section(rows=[_COLUMNS, *rows], left=(-1,), after=[_UNITS])
        return render([table], width=_NO_LIMIT, color=color)


def _facts(sheet: DataSheet, rests_on: str) -> list[Fact]:
    capability = f", {sheet.compute_capability}" if sheet.compute_capability else ""
    caches = {"L2": sheet.l2_mb, "last level": sheet.last_level_cache_mb}
    shared = " (shared with the host)" if sheet.integrated else ""
    facts = {
        "also called": ", ".join(sheet.aliases) or "-",
        "chip": f"{sheet.chip}, {sheet.architecture}{capability}, {sheet.year}",
        "SMs": f"{sheet.sms}, up to {sheet.boost_mhz:,.0f} MHz",
    }
    for words, field in _RATES.items():
        if rate := getattr(sheet, field):
            facts[words] = f"{_number(rate)} TFLOP/s"
    facts |= {
        "memory": f"{_number(sheet.memory_gb)} GB{shared}, {_number(sheet.bandwidth_gbps)} GB/s",
        "caches": ", ".join(f"{words} {_number(size)} MB" for words, size in caches.items() if size) or "unknown",
        "PCIe": f"{sheet.pcie_gen}.0 x{sheet.pcie_lanes}" if sheet.pcie_gen else "-",
        "power": f"{_number(sheet.watts)} W" if sheet.watts else "unknown",
        "knowledge": rests_on,
        "source": sheet.source,
        "one source only": ", ".join(sheet.unchecked) or "nothing",
    }
    return [Fact(word, text) for word, text in facts.items()]


def _number(value: float) -> str:
    """Three digits, whole numbers as they are; a dash for none."""
    if not value:
        return "-"
    return f"{value:,.0f}" if value == round(value) else three_digits(value)

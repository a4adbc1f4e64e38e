"""``placer gpus``: the catalog of GPUs, and the data sheet of one of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from placer.cli.output import show_text
from placer.units import three_digits

if TYPE_CHECKING:
    from placer.profile import DataSheet

#: Version of the JSON; keys may be added to it.
_SCHEMA = 1
_COLUMNS = ("name", "year", "SMs", "float32", "tensor", "GB/s", "L2 MB", "GB", "knowledge")
#: Rates of one sheet: what it says, and the field.
_RATES = (
    ("float32", "float32_tflops"),
    ("float64", "float64_tflops"),
    ("float16", "float16_tflops"),
    ("tensor float16", "tensor_float16_tflops"),
    ("tensor bfloat16", "tensor_bfloat16_tflops"),
    ("tensor TF32", "tensor_tf32_tflops"),
    ("matrix float32", "matrix_float32_tflops"),
)


@click.command("gpus")
@click.argument("words", metavar="[NAME]", nargs=-1)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(words: tuple[str, ...], form: str) -> None:
    """Show what is known of the GPUs in the catalog.

    Of all of them, or of the one called NAME: "RTX 4090", A100, "Tesla T4".
    """
    from placer.profile import find_gpu, gpus, knowledge

    sheets = [find_gpu(" ".join(words))] if words else list(gpus().values())
    if form == "json":
        rows = [{**asdict(sheet), "knowledge": knowledge(sheet.name)} for sheet in sheets]
        show_text(json.dumps({"schema": _SCHEMA, "gpus": rows}, indent=2))
    elif words:
        show_text(_sheet(sheets[0], knowledge(sheets[0].name)))
    else:
        show_text(_table([_row(sheet, knowledge(sheet.name)) for sheet in sheets]))
        show_text("\nRates in TFLOP/s; tensor: float16 products that add up in float32. One GPU: placer gpus NAME")


def _row(sheet: DataSheet, rests_on: str) -> tuple[str, ...]:
    numbers = (sheet.float32_tflops, sheet.tensor_float16_tflops, sheet.bandwidth_gbps, sheet.l2_mb, sheet.memory_gb)
    return (sheet.name, str(sheet.year), str(sheet.sms), *map(_number, numbers), rests_on)


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    """Columns with the first and the last one to the left, the numbers to the right. One line per GPU, for grep."""
    lines = (_COLUMNS, *rows)
    widths = [max(len(line[column]) for line in lines) for column in range(len(_COLUMNS))]
    return "\n".join(
        "  ".join(
            (
                line[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(line[1:-1], widths[1:-1], strict=True)),
                line[-1],
            )
        )
        for line in lines
    )


def _sheet(sheet: DataSheet, rests_on: str) -> str:
    capability = f", {sheet.compute_capability}" if sheet.compute_capability else ""
    caches = ((sheet.l2_mb, "L2"), (sheet.last_level_cache_mb, "last level"))
    shared = " (shared with the host)" if sheet.integrated else ""
    lines = [
        ("also called", ", ".join(sheet.aliases) or "-"),
        ("chip", f"{sheet.chip}, {sheet.architecture}{capability}, {sheet.year}"),
        ("SMs", f"{sheet.sms}, up to {sheet.boost_mhz:,.0f} MHz"),
        *((words, f"{_number(rate)} TFLOP/s") for words, field in _RATES if (rate := getattr(sheet, field))),
        ("memory", f"{_number(sheet.memory_gb)} GB{shared}, {_number(sheet.bandwidth_gbps)} GB/s"),
        ("caches", ", ".join(f"{words} {_number(size)} MB" for size, words in caches if size) or "unknown"),
        ("PCIe", f"{sheet.pcie_gen}.0 x{sheet.pcie_lanes}" if sheet.pcie_gen else "-"),
        ("power", f"{_number(sheet.watts)} W" if sheet.watts else "unknown"),
        ("knowledge", rests_on),
        ("source", sheet.source),
        ("one source only", ", ".join(sheet.unchecked) or "nothing"),
    ]
    width = max(len(words) for words, _ in lines)
    return "\n".join((sheet.name, *(f"  {words.ljust(width)}  {value}" for words, value in lines)))


def _number(value: float) -> str:
    """Three digits, whole numbers as they are; a dash for none."""
    if not value:
        return "-"
    return f"{value:,.0f}" if value == round(value) else three_digits(value)

"""Draws docs/picture.svg, the picture of README.md: ``python docs/picture.py`` (``--check`` only compares).

The time of a step over the batch size, on a CPU and on a GPU, with 90 % intervals and the batch size where the two take
equal time. Every figure in it comes from the record below and from the code as it is now. Nothing is measured here.

The file has no external part. It follows the reader from light to dark, inside an ``<img>`` too. Where it is shown
small, as on a phone, its text is larger and there is less of it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from string import Template

import torch

from placer.calibration.suite.conv1d import Conv1dRegressor
from placer.decision import answer, ask, with_batch
from placer.explanation import Sweep
from placer.units import format_seconds
from placer.workload import make_workload

ROOT = Path(__file__).resolve().parent.parent
#: The calibration that the CPU's times rest on, relative to the checkout, and its number of threads.
RECORD, THREADS = "calibration/records/cpu-2-core/profile.json.xz", 2
#: The catalog's name of the GPU, and the batch sizes.
GPU, BATCHES = "T4", tuple(2**power for power in range(2, 11))

WIDTH, HEIGHT = 800, 452
#: The edges of the plot. To its right stand the names of the curves.
LEFT, RIGHT, TOP, BOTTOM = 76, 652, 126, 366
#: The times at which a line crosses the plot, in seconds.
TICKS = (2.5e-4, 5e-4, 1e-3, 2e-3)
#: The plot begins so far below the shortest time, where a label has room, and ends so far above the longest.
BELOW, ABOVE = 1.2, 1.06

#: Colours on a light and on a dark page: those of the html report. Written out, as not every viewer knows variables.
LIGHT = {
    "paper": "#fff", "ink": "#1d1f23", "quiet": "#5d646f", "line": "#e3e6ea", "cpu": "#2868b8", "gpu": "#b0503c",
}  # fmt: skip
DARK = {
    "paper": "#15181d", "ink": "#e4e7ec", "quiet": "#9aa3af", "line": "#2b313a", "cpu": "#6ea8f0", "gpu": "#ef907a",
}  # fmt: skip
COLOURED = """
text { fill: $quiet; } .title, .ink { fill: $ink; } .cpu { fill: $cpu; } .gpu { fill: $gpu; }
.paper { fill: $paper; stroke: $line; } .grid { stroke: $line; } .turn { stroke: $quiet; }
.curve.cpu { stroke: $cpu; } .curve.gpu { stroke: $gpu; } .ring { fill: $paper; stroke: $ink; }
""".strip()
STYLE = f"""
text {{ font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }}
.title {{ font-size: 21px; font-weight: 600; }}
.name {{ font-size: 15px; font-weight: 600; }}
.small {{ font-size: 12px; }}
.middle {{ text-anchor: middle; }}
.end {{ text-anchor: end; }}
.band {{ fill-opacity: .15; }}
{Template(COLOURED).substitute(LIGHT)}
@media (prefers-color-scheme: dark) {{
{Template(COLOURED).substitute(DARK)}
}}
.turn {{ stroke-dasharray: 3 4; }}
path.grid, path.turn, path.curve {{ fill: none; }}
.curve {{ stroke-width: 2.5; stroke-linejoin: round; stroke-linecap: round; }}
.ring {{ stroke-width: 2; }}
.brief {{ display: none; }}
@media (max-width: 600px) {{
text {{ font-size: 27px; }} .title {{ font-size: 36px; }} .name {{ font-size: 29px; }} .curve {{ stroke-width: 5; }}
.full {{ display: none; }} .brief {{ display: inline; }}
.edge {{ text-anchor: start; transform: translate(-60px, -6px); }} .above {{ transform: translateY(-14px); }}
.under {{ transform: translateY(10px); }} .lower {{ transform: translateY(20px); }}
}}
""".strip()


def swept() -> Sweep:
    """The network of README.md in inference, at each batch size, priced for the record's number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        workload = make_workload(Conv1dRegressor(), (BATCHES[0], 84), mode="infer")
        question = ask(workload, what_if=GPU, profile=ROOT / RECORD)
        tables = {batch: answer(question.of(with_batch(workload, batch))) for batch in BATCHES}
    finally:
        torch.set_num_threads(before)
    return Sweep("batch", tables)


def draw(found: Sweep) -> str:
    """The picture as a whole SVG file.

    Raises:
        ValueError: the CPU is not first faster and then slower, which is what the picture says.
    """
    cpu, gpu = (found.times(name) for name in found.headings)
    turning = [found.turn(batch) for batch, _ in found.crossovers()[1:]]
    if len(turning) != 1 or turning[0] is None or cpu[0] > gpu[0]:
        raise ValueError(f"the picture shows one batch size up to which the CPU is faster; there are {turning}")
    turn = turning[0]
    scale = _Scale(found.rows, [*cpu, *gpu])
    at = scale.x(turn)
    level = scale.y(_between(found.rows, [time[0] for time in cpu], turn))
    model = Conv1dRegressor()
    parameters = sum(weights.numel() for weights in model.parameters())
    slower, faster = gpu[0][0] / cpu[0][0], cpu[-1][0] / gpu[-1][0]
    title = f"Up to a batch of about {turn:.0f}, this network is faster on the CPU"
    rests_on = f"Rests on: CPU, a calibration ({RECORD}); {GPU}, published measurements, not calibrated."
    description = (
        f"A line chart on log scales. A step of inference takes {format_seconds(cpu[0][0])} on the CPU and "
        f"{format_seconds(gpu[0][0])} on a {GPU} at batch {BATCHES[0]}, equal time at about batch {turn:.0f}, and "
        f"{format_seconds(cpu[-1][0])} on the CPU and {format_seconds(gpu[-1][0])} on the {GPU} at batch "
        f"{BATCHES[-1]:,}. Bands show the 90 % intervals."
    )
    parts = [
        _text(28, 42, title, "title full"),
        _text(28, 56, f"CPU faster up to batch {turn:.0f}", "title brief"),
        _text(28, 66, f"Predicted time of one inference step of Conv1dRegressor ({parameters:,} parameters), by batch "
                      "size. Bands: 90 % intervals.", "full"),
        *_axes(scale),
        *(f'<path class="band {name}" d="{scale.band(times)}"/>' for name, times in (("cpu", cpu), ("gpu", gpu))),
        f'<path class="turn" d="M{at:.1f} {TOP - 24}V{BOTTOM}"/>',
        *(f'<path class="curve {name}" d="{scale.line(times)}"/>' for name, times in (("cpu", cpu), ("gpu", gpu))),
        f'<circle class="ring" cx="{at:.1f}" cy="{level:.1f}" r="6"/>',
        _text(at - 14, TOP - 12, f"← CPU faster{_full(f', up to {slower:.1f}×')}", "ink end above"),
        _text(at + 14, TOP - 12, f"{GPU} faster{_full(f', up to {faster:.1f}×')} →", "ink above"),
        _text(at + 10, BOTTOM - 9, f"equal time at about batch {turn:.0f}", "ink full"),
        *_name("cpu", f"CPU{_full(f', {THREADS} cores')}", cpu[-1][0], scale),
        *_name("gpu", f"{GPU}{_full(' GPU')}", gpu[-1][0], scale),
        _text(28, HEIGHT - 20, rests_on, "small full"),
    ]  # fmt: skip
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'role="img" aria-labelledby="title description">\n'
        f'<title id="title">{title}</title>\n<desc id="description">{description}</desc>\n'
        f"<style>\n{STYLE}\n</style>\n"
        f'<rect class="paper" x=".5" y=".5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="8"/>\n{body}\n</svg>\n'
    )


class _Scale:
    """Where a batch size and a time stand in the picture, both on log scales."""

    def __init__(self, batches: Iterable[int], times: Iterable[Sequence[float]]) -> None:
        self.batches = list(batches)
        known = [seconds for time in times for seconds in time]
        self.low, self.high = min(known) / BELOW, max(known) * ABOVE

    def x(self, batch: float) -> float:
        first, last = self.batches[0], self.batches[-1]
        return LEFT + (RIGHT - LEFT) * math.log(batch / first) / math.log(last / first)

    def y(self, seconds: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * math.log(seconds / self.low) / math.log(self.high / self.low)

    def points(self, values: Iterable[float]) -> list[str]:
        return [f"{self.x(batch):.1f} {self.y(value):.1f}" for batch, value in zip(self.batches, values, strict=True)]

    def line(self, times: Sequence[Sequence[float]]) -> str:
        """The path of the times themselves."""
        return "M" + "L".join(self.points(time[0] for time in times))

    def band(self, times: Sequence[Sequence[float]]) -> str:
        """The path around the intervals."""
        above, below = self.points(time[2] for time in times), self.points(time[1] for time in times)
        return "M" + "L".join([*above, *reversed(below)]) + "Z"


def _between(batches: Iterable[int], values: Sequence[float], batch: float) -> float:
    """The value at a batch size between two of ``batches``, on the straight line that log scales draw there."""
    known = list(batches)
    index = next(number for number, each in enumerate(known) if each >= batch)
    if known[index] == batch:
        return values[index]
    share = math.log(batch / known[index - 1]) / math.log(known[index] / known[index - 1])
    return values[index - 1] * (values[index] / values[index - 1]) ** share


def _axes(scale: _Scale) -> list[str]:
    parts = []
    for seconds in TICKS:
        if scale.low <= seconds <= scale.high:
            y = scale.y(seconds)
            parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{RIGHT}"/>')
            parts.append(_text(LEFT - 10, y + 4.5, _round(seconds), "end edge"))
    parts.append(f'<path class="grid" d="M{LEFT} {BOTTOM}H{RIGHT}"/>')
    for number, batch in enumerate(scale.batches):
        parts.append(f'<path class="grid" d="M{scale.x(batch):.1f} {BOTTOM}v5"/>')
        parts.append(_text(scale.x(batch), BOTTOM + 21, f"{batch:,}", "middle full" if number % 2 else "middle under"))
    parts.append(_text((LEFT + RIGHT) / 2, BOTTOM + 42, "batch size", "middle lower"))
    return parts


def _round(seconds: float) -> str:
    """A tick's time without decimals: ``500 µs``, ``2 ms``."""
    return f"{seconds * 1e3:.0f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"


def _name(device: str, name: str, seconds: float, scale: _Scale) -> list[str]:
    """A curve's name and last time, to the right of its end."""
    y = scale.y(seconds)
    return [
        _text(RIGHT + 14, y + 1, name, f"name {device}"),
        _text(RIGHT + 14, y + 18, f"{format_seconds(seconds)} at {scale.batches[-1]:,}", "full"),
    ]


def _full(words: str) -> str:
    """Words that are left out where the picture is small."""
    return f'<tspan class="full">{words}</tspan>'


def _text(x: float, y: float, text: str, style: str = "") -> str:
    named = f' class="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{named}>{text}</text>'


def main(arguments: list[str]) -> int:
    """Write the picture, or with ``--check`` name it if it would change. Returns the exit code."""
    if arguments not in ([], ["--check"]):
        raise SystemExit("usage: python docs/picture.py [--check]")
    path = ROOT / "docs" / "picture.svg"
    drawn = draw(swept())
    if path.is_file() and path.read_text(encoding="utf-8") == drawn:
        return 0
    print(path.relative_to(ROOT))
    if not arguments:
        path.write_text(drawn, encoding="utf-8")
    return len(arguments)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

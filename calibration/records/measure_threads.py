"""How ops and whole steps scale with the number of CPU threads: ``python measure_threads.py FOLDER [SECONDS]``.

Writes ``thread_ops.jsonl`` (a line for every op, size and number of threads: median and least seconds of a call) and
``thread_steps.json`` (networks of the quick suite, predicted and measured as ``placer validate`` does).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placer import machine, profile
from placer.calibration.measuring.timing import measure, percentile
from placer.calibration.records.measure_gpu import given, phases
from placer.calibration.suite import entries
from placer.calibration.validation.run import validate

#: Seconds that one op is timed with one number of threads.
BUDGET = 0.02
#: What is added to a layer's name.
PHASES = {"forward": "", "backward": "_backward"}
#: Elements of operands: each op walks one to three of them.
SIZES = (1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 23)
COLUMNS = 256

#: Ops of one tensor of any number of elements, 256 columns wide.
OF_ROWS: dict[str, Callable[[Tensor], object]] = {
    "relu": torch.relu, "exp": torch.exp, "gelu": F.gelu, "add": lambda x: x + x, "copy": lambda x: x.t().contiguous(),
    "sum": torch.sum, "sum_rows": lambda x: x.sum(0), "sum_columns": lambda x: x.sum(1),
    "softmax": lambda x: x.softmax(-1), "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True), "dropout": F.dropout,
    "cumsum": lambda x: x.cumsum(-1), "sort": lambda x: x.sort(-1), "argmax": lambda x: x.argmax(-1),
    "cat": lambda x: torch.cat([x, x]), "mse_loss": lambda x: F.mse_loss(x, x), "int8": lambda x: x.to(torch.int8),
    "index_select": lambda x: x.index_select(0, torch.arange(len(x)).flip(0)),
    "index_add": lambda x: x.index_add(0, torch.arange(len(x)).flip(0), x), "cross_entropy": lambda x: F.cross_entropy(
        x, torch.zeros(len(x), dtype=torch.long)
    ),
}  # fmt: skip
#: Sizes of square matrices; (rows, inputs, outputs) of layers; (number, size) of batches of matrices.
SQUARES = (32, 64, 128, 256, 512, 1024, 2048)
LINEARS = ((1, 1024, 1024), (32, 256, 256), (32, 1024, 1024), (256, 1024, 4096), (4096, 64, 64))
BATCHES = ((16, 32), (64, 64), (256, 64), (32, 256))
#: Layers, each with the shapes of an input.
LAYERS: dict[str, tuple[nn.Module, tuple[tuple[int, ...], ...]]] = {
    "conv2d": (nn.Conv2d(64, 64, 3, padding=1), ((1, 64, 14, 14), (1, 64, 56, 56), (16, 64, 56, 56))),
    "conv2d_1x1": (nn.Conv2d(64, 256, 1), ((1, 64, 56, 56), (16, 64, 56, 56))),
    "conv2d_depthwise": (nn.Conv2d(64, 64, 3, padding=1, groups=64), ((1, 64, 56, 56), (16, 64, 56, 56))),
    "conv2d_first": (nn.Conv2d(3, 64, 7, stride=2, padding=3), ((1, 3, 224, 224), (8, 3, 224, 224))),
    "conv1d": (nn.Conv1d(64, 64, 5, padding=2), ((4, 64, 128), (32, 64, 1024))),
    "conv_transpose2d": (nn.ConvTranspose2d(64, 32, 4, stride=2, padding=1), ((8, 64, 32, 32),)),
    "max_pool": (nn.MaxPool2d(3, 2, 1), ((1, 64, 56, 56), (16, 64, 56, 56))),
    "avg_pool": (nn.AvgPool2d(2), ((1, 64, 56, 56), (16, 64, 56, 56))),
    "interpolate": (nn.Upsample(scale_factor=2, mode="bilinear"), ((1, 64, 28, 28), (16, 64, 28, 28))),
    "lstm": (nn.LSTM(128, 256), ((32, 1, 128), (32, 64, 128))), "gru": (nn.GRU(128, 256), ((32, 64, 128),)),
    "attention": (nn.TransformerEncoderLayer(256, 8, batch_first=True), ((1, 64, 256), (16, 128, 256))),
}  # fmt: skip


def calls() -> Iterator[tuple[str, list[int], Callable[[], object]]]:
    """(name, shape, call) of every op; backward passes too, of what has parameters or is differentiable."""
    for name, function in OF_ROWS.items():
        for size in SIZES:
            x = torch.randn(size // COLUMNS, COLUMNS)
            yield name, list(x.shape), partial(function, x)
    for n in SQUARES:
        x, y = torch.randn(n, n), torch.randn(n, n)
        yield "mm", [n, n, n], partial(torch.matmul, x, y)
    for number, n in BATCHES:
        x, y = torch.randn(number, n, n), torch.randn(number, n, n)
        yield "bmm", [number, n, n], partial(torch.matmul, x, y)
    for rows, inputs, outputs in LINEARS:
        for phase, call in phases("cpu", ((rows, inputs),), partial(nn.Linear, inputs, outputs)):
            yield f"linear{PHASES[phase]}", [rows, inputs, outputs], call
    for name, (layer, shapes) in LAYERS.items():
        for shape in shapes:
            for phase, call in phases("cpu", (shape,), partial(given, layer)):
                yield f"{name}{PHASES[phase]}", list(shape), call
    for count, size in ((10, 1000), (50, 20000), (20, 1 << 20)):
        weights = [nn.Parameter(torch.randn(size)) for _ in range(count)]
        for weight in weights:
            weight.grad = torch.randn(size)
        yield "adam", [count, size], torch.optim.Adam(weights).step


def main(folder: Path, seconds: float) -> None:
    """Ops, then steps until the time is over."""
    end = time.perf_counter() + seconds
    folder.mkdir(parents=True, exist_ok=True)
    most = torch.get_num_threads()
    counts = sorted({min(2**power, most) for power in range(most.bit_length() + 1)})
    every = list(calls())
    with (folder / "thread_ops.jsonl").open("a") as lines:
        lines.write(json.dumps({"environment": machine.fingerprint()}) + "\n")
        for threads in reversed(counts):
            torch.set_num_threads(threads)
            for name, shape, call in every:
                readings = measure(call, seconds=BUDGET)
                found = {"median": percentile(readings, 0.5), "least": readings[0], "readings": len(readings)}
                lines.write(json.dumps({"op": name, "shape": shape, "threads": threads, **found}) + "\n")
            lines.flush()
    torch.set_num_threads(most)
    validate(
        entries("quick"), profile.load(profile.shipped()[0]), ("cpu",), threads=counts, deadline=end, rounds=3,
        output=folder / "thread_steps.json", time_limit_per_cell=0.1, isolated=False,
        progress=lambda text: print(text, file=sys.stderr, flush=True),
    )  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 120.0)

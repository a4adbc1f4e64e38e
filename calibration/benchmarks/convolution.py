"""Convolutions: 1-d, 2-d and 3-d, strided, dilated, grouped, depthwise, transposed; forward and backward."""

from __future__ import annotations

from random import Random
from typing import Any

from torch import nn

from placer.calibration.benchmarks.probe import Branch, Limit, Probe, block, log_int, tensor, widths

#: Share of layers as they stand deep in networks of images: many channels on few positions, where most of the memory
#: that is moved are weights; and of short series and small images in large batches, as rows of a table are. Of shapes
#: drawn evenly, hardly any are either.
DEEP, MANY = 0.3, 0.1
#: Share of layers that cut an image into patches, or put them together again; and of those that are transposed.
PATCHES, TRANSPOSED = 0.1, 0.15
#: Largest sides of other images, by dimensions.
LARGEST = {1: 2048, 2: 224, 3: 24}
LAYERS = {1: (nn.Conv1d, nn.ConvTranspose1d), 2: (nn.Conv2d, nn.ConvTranspose2d), 3: (nn.Conv3d, nn.ConvTranspose3d)}


def propose(random: Random, limit: Limit) -> Probe:
    """A block of convolutions of random shapes."""
    return block("convolution", random, limit, _draw, most=12)


def _draw(random: Random) -> Branch:
    dims = random.choice((1, 1, 1, 2, 2, 2, 2, 2, 3))
    depthwise, transposed = random.random() < 0.2, random.random() < TRANSPOSED
    place, patches = random.random() if dims < 3 else 1.0, random.random() < PATCHES
    deep, many = place < DEEP, DEEP <= place < DEEP + MANY
    kernel = random.choice((2, 2, 4, 8, 16) if patches else (1, 3, 3, 4) if deep else (1, 3, 3, 3, 4, 5, 7))
    cin, cout = widths(random, 64 if deep else 2, 64 if many else 1024, 2)
    if not deep and random.random() < 0.25:
        cin = random.choice((1, 1, 3))
    cout = cin if depthwise else cout
    groups = cin if depthwise else (4 if random.random() < 0.05 and cin % 4 == cout % 4 == 0 else 1)
    stride = kernel if patches else random.choice((2, 2, 1) if kernel == 4 else (1, 1, 1, 2))
    dilation = 1 if deep or patches else random.choice((1, 1, 1, 1, 2))
    padding = 0 if patches else dilation * ((kernel - 1) // 2)
    side = log_int(random, max(dilation * (kernel - 1) + 1 - 2 * padding, 1), 32 if deep or many else LARGEST[dims])
    batch = log_int(random, 256 if many else 1, 64 if deep else 8192 if many else 4096 if dims == 1 else 128)
    bias = random.random() < 0.6
    out = (side * stride if transposed else max(side // stride, 1)) ** dims
    flops = 2.0 * batch * cin * cout / groups * kernel**dims * (side**dims if transposed else out)
    moved = 4.0 * (batch * (cin * side**dims + cout * out) + cin * cout / groups * kernel**dims)
    # Few channels leave vector units empty: such layers take longer than their arithmetic says.
    flops *= max(16 / max(cin / groups, 1), 1) ** 0.5 * max(16 / max(cout / groups, 1), 1) ** 0.5
    layer = LAYERS[dims][transposed]
    geometry: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation}
    shape = f"n{batch} {cin}->{cout} groups {groups} kernel {kernel} stride {stride} side {side}"
    return Branch(
        f"conv{dims}d{' transposed' * transposed} {shape}",
        lambda: layer(cin, cout, kernel, groups=groups, bias=bias, **geometry),
        lambda grad: tensor(batch, cin, *(side,) * dims, grad=grad),
        flops,
        moved,
    )

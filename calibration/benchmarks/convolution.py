"""Convolutions: 1-d, 2-d and 3-d, strided, dilated, grouped, depthwise, transposed; forward and backward."""

from __future__ import annotations

from random import Random
from typing import Any

from torch import nn

from placer.calibration.probe import Branch, Limit, Probe, block, log_int, tensor, widths

LAYERS = {1: (nn.Conv1d, nn.ConvTranspose1d), 2: (nn.Conv2d, nn.ConvTranspose2d), 3: (nn.Conv3d, nn.ConvTranspose3d)}


def propose(random: Random, limit: Limit) -> Probe:
    """A block of convolutions of random shapes."""
    return block("convolution", random, limit, _draw, most=12)


def _draw(random: Random) -> Branch:
    dims = random.choice((1, 1, 1, 2, 2, 2, 2, 2, 3))
    kernel = random.choice((1, 3, 3, 3, 5, 7))
    depthwise, transposed = random.random() < 0.2, random.random() < 0.1
    cin, cout = widths(random, 2, 1024, 2)
    if random.random() < 0.25:
        cin = random.choice((1, 1, 3))
    cout = cin if depthwise else cout
    groups = cin if depthwise else (4 if random.random() < 0.05 and cin % 4 == cout % 4 == 0 else 1)
    stride = random.choice((1, 1, 1, 2))
    dilation = random.choice((1, 1, 1, 1, 2))
    side = log_int(random, dilation * (kernel - 1) + 1, {1: 2048, 2: 224, 3: 24}[dims])
    batch = log_int(random, 1, 4096 if dims == 1 else 128)
    bias = random.random() < 0.6
    out = (side * stride if transposed else max(side // stride, 1)) ** dims
    flops = 2.0 * batch * cin * cout / groups * kernel**dims * (side**dims if transposed else out)
    moved = 4.0 * batch * (cin * side**dims + cout * out)
    # Few channels leave vector units empty: such layers take longer than their arithmetic says.
    flops *= max(16 / max(cin / groups, 1), 1) ** 0.5 * max(16 / max(cout / groups, 1), 1) ** 0.5
    layer = LAYERS[dims][transposed]
    geometry: dict[str, Any] = {"stride": stride, "padding": dilation * (kernel // 2), "dilation": dilation}
    shape = f"n{batch} {cin}->{cout} groups {groups} kernel {kernel} stride {stride} side {side}"
    return Branch(
        f"conv{dims}d{' transposed' * transposed} {shape}",
        lambda: layer(cin, cout, kernel, groups=groups, bias=bias, **geometry),
        lambda grad: tensor(batch, cin, *(side,) * dims, grad=grad),
        flops,
        moved,
    )

"""What all kinds of random networks are drawn with: layers in sequence with a count of their work, and activations."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

ACTIVATIONS: tuple[Callable[[], nn.Module], ...] = (
    nn.ReLU, nn.ReLU, nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Mish, nn.ELU, nn.Sigmoid, nn.LeakyReLU,
    nn.Softplus, nn.Hardswish,
)  # fmt: skip
#: The first of them, which most networks have.
USUAL_ACTIVATIONS = ACTIVATIONS[:6]
#: Share of networks that are given a single sample, as policies, solvers and servers are.
ALONE = 0.2


class Layers(list[nn.Module]):
    """Layers in sequence, with a rough count of a forward pass: FLOPs, and bytes of what is written."""

    flops = 0.0
    bytes = 0.0

    def add(self, *modules: nn.Module, flops: float = 0.0, elements: float = 0.0) -> None:
        """Append ``modules``, which together take ``flops`` and each write ``elements`` float32 numbers."""
        self.extend(modules)
        self.flops += flops
        self.bytes += 4.0 * elements * len(modules)

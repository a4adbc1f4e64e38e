"""What inference runs as one fused op: the layers of ``nn.TransformerEncoder``, and ``nn.MultiheadAttention`` alone."""

from __future__ import annotations

from random import Random

from torch import Tensor, nn

from placer.calibration.benchmarks.probe import Branch, Limit, Probe, block, log_int, tensor


class SelfAttention(nn.Module):
    """``nn.MultiheadAttention`` of a sequence with itself."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.attention(x, x, x, need_weights=False)[0]
        return result


def propose(random: Random, limit: Limit) -> Probe:
    """A block of fused layers of random shapes, in inference."""
    return block("encoder", random, limit, _draw, most=6, training=0.0)


def _draw(random: Random) -> Branch:
    heads, width = random.choice((2, 4, 8)), random.choice((8, 16, 32, 64))
    batch, length, model = log_int(random, 1, 256), log_int(random, 2, 512), heads * width
    tokens = float(batch * length)
    projections, scores = 8.0 * model, 4.0 * length
    if random.random() < 0.2:
        return Branch(
            f"attention layer {batch}x{length}x{model} heads {heads}",
            lambda: SelfAttention(model, heads),
            lambda grad: tensor(batch, length, model),
            tokens * model * (projections + scores),
            4.0 * tokens * (6 * model + heads * length),
            trains=False,
        )
    hidden = log_int(random, 8, 4 * model) if random.random() < 0.5 else random.choice((1, 2, 4)) * model
    activation, first = random.choice(("relu", "gelu")), random.random() < 0.5
    return Branch(
        f"encoder layer {batch}x{length}x{model} heads {heads} feed-forward {hidden}",
        lambda: nn.TransformerEncoderLayer(
            model, heads, hidden, activation=activation, batch_first=True, norm_first=first
        ),
        lambda grad: tensor(batch, length, model),
        tokens * (model * (projections + scores) + 4.0 * hidden * model),
        4.0 * tokens * (6 * model + 2 * hidden + heads * length),
        trains=False,
    )

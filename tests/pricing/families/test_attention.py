"""Attention: two products forward, five backward."""

from __future__ import annotations

import torch.nn.functional as F
from described import feature, spec, traced, work
from torch import Tensor, nn

from placer.pricing.describe import amounts


class Attend(nn.Module):
    def __init__(self, causal: bool = False) -> None:
        super().__init__()
        self.causal, self.project = causal, nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (2, -1)).transpose(1, 2) for t in self.project(x).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)


def test_attention_is_two_products_forward_and_five_backward() -> None:
    forward = traced(Attend(), "aten::scaled_dot_product_attention", (3, 5, 8))
    backward = traced(Attend(), "aten::scaled_dot_product_attention_backward", (3, 5, 8))
    product = 2 * (3 * 2) * 5 * 5 * 4  # batch x heads, queries, keys, width of a head
    assert forward.flops == 2 * product
    assert backward.flops == 5 * product
    assert forward.sizes[:4] == (6, 5, 5, 4)
    assert feature(forward, "causal") == 0
    assert feature(traced(Attend(True), "aten::scaled_dot_product_attention", (3, 5, 8)), "causal") == 1


def test_attention_with_dropout_has_no_fused_kernel() -> None:
    q = spec(2, 4, 16, 8)
    fused = work("aten::scaled_dot_product_attention", [q, q, q], [q], False, False, 0.0, False)
    plain = work("aten::scaled_dot_product_attention", [q, q, q], [q], False, False, 0.1, False)
    assert feature(fused, "dropout") == 0
    assert amounts(plain)["dropped_scores"] == 2 * 4 * 16 * 16


def test_keys_may_be_more_than_queries_and_values_narrower() -> None:
    q, k, v = spec(2, 4, 5, 8), spec(2, 4, 7, 8), spec(2, 4, 7, 6)
    found = work("aten::scaled_dot_product_attention", [q, k, v], [spec(2, 4, 5, 6)], False, False, 0.0, False)
    assert found.sizes[:4] == (8, 5, 7, 8)
    assert found.flops == 2 * 8 * 5 * 7 * (8 + 6)
    assert (amounts(found)["scores"], amounts(found)["rows"], amounts(found)["dropped_scores"]) == (8 * 5 * 7, 8, 0)
    heads_inside = [spec(8, *t.shape[2:]) for t in (q, k, v)]
    assert work("aten::scaled_dot_product_attention", heads_inside, [spec(8, 5, 6)], False).flops == found.flops
    masked = work("aten::scaled_dot_product_attention", [q, k, v, spec(5, 7)], [spec(2, 4, 5, 6)], False)
    assert (feature(found, "masked"), feature(masked, "masked")) == (0, 1)

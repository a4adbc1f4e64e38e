"""Losses."""

from __future__ import annotations

from placer.tracing.formulas.base import Formula, Plain, Slots, Specs, one_dtype
from placer.tracing.layout import dense, elementwise_layout, make_spec


def _nll_loss(slots: Slots, plain: Plain) -> Specs | None:
    scores, target = slots[:2]
    total = dense((), scores.dtype)
    return (dense(target.shape, scores.dtype) if plain["reduction"] == 0 else total), total


def _nll_loss_backward(slots: Slots, plain: Plain) -> Specs | None:
    return (dense(slots[1].shape, slots[1].dtype),)


def _pair_loss(slots: Slots, plain: Plain) -> Specs | None:
    if not one_dtype(*slots):
        return None
    if plain["reduction"] != 0:
        return (dense((), slots[0].dtype),)
    return (make_spec(*elementwise_layout(slots[:2]), slots[0].dtype),)


def _pair_loss_backward(slots: Slots, plain: Plain) -> Specs | None:
    operands = [s for s in slots[:3] if s is not None]
    if not one_dtype(*operands) or not all(o.contiguous for o in operands):
        return None
    return (make_spec(*elementwise_layout(operands), slots[1].dtype),)


FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), _nll_loss),
    **dict.fromkeys(("nll_loss_backward", "nll_loss2d_backward"), _nll_loss_backward),
    **dict.fromkeys(("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy"), _pair_loss),
    **dict.fromkeys(
        ("mse_loss_backward", "smooth_l1_loss_backward", "binary_cross_entropy_backward"), _pair_loss_backward
    ),
}

"""Formulas give the shapes, strides and dtypes of the real CPU kernels, and nearly no op needs a Python meta kernel."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.tracing.operators import FORMULAS, known_outputs, read_call
from placer.tracing.trace_data import elementwise_layout, spec_of

A = torch.ops.aten


def predicted(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
    call = read_call(func, args, kwargs or {})
    info = call.info
    assert info.pointwise or info.base in FORMULAS
    if info.pointwise:
        return known_outputs(call)
    specs = FORMULAS[info.base](call.slots, dict(zip(info.plain_names, call.plain, strict=True)))
    return None if specs is None else (specs, info.bare)


def real(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
    result = func(*args, **(kwargs or {}))
    bare = isinstance(result, torch.Tensor)
    specs = (result,) if bare else result
    return tuple(None if t is None else spec_of(t) for t in specs), bare


IMAGE = torch.randn(2, 6, 9, 8)
LAST = IMAGE.contiguous(memory_format=torch.channels_last)
ROWS = torch.randn(5, 7)
C = torch.rand(6)
MASK = [True, True, True]
LABELS = torch.tensor([0, 1, 2, 0, 6])


def cases() -> dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    found: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {}

    def add(name: str, func: Any, *args: Any, **kwargs: Any) -> None:
        found[name] = (func, args, kwargs)

    for label, image in {"": IMAGE, "_last": LAST}.items():
        for training in (True, False):
            add(f"bn{label}_{training}", A.native_batch_norm.default, image, C, C, C, C, training, 0.1, 1e-5)
            add(
                f"bnb{label}_{training}",
                A.native_batch_norm_backward.default,
                image,
                image,
                C,
                C,
                C,
                C,
                C,
                training,
                1e-5,
                MASK,
            )
        add(
            f"conv{label}",
            A.convolution.default,
            image,
            torch.randn(4, 3, 3, 2),
            C[:4],
            [2, 1],
            [1, 0],
            [1, 2],
            False,
            [0, 0],
            2,
        )
        add(f"add{label}", A.add.Tensor, image, C[:, None, None])
    add(
        "conv1d",
        A.convolution.default,
        IMAGE[:, :, 0].contiguous(),
        torch.randn(4, 6, 3),
        None,
        [1],
        [0],
        [1],
        False,
        [0],
        1,
    )
    weight = torch.randn(4, 6, 3, 3)
    out = torch.randn(2, 4, 7, 6)
    add(
        "convb",
        A.convolution_backward.default,
        out,
        IMAGE,
        weight,
        [4],
        [1, 1],
        [0, 0],
        [1, 1],
        False,
        [0, 0],
        1,
        [True, True, False],
    )
    add("ln", A.native_layer_norm.default, ROWS, [7], ROWS[0], ROWS[0], 1e-5)
    add("ln2", A.native_layer_norm.default, IMAGE.transpose(0, 1), [9, 8], None, None, 1e-5)
    add("lnb", A.native_layer_norm_backward.default, ROWS, ROWS, [7], ROWS[:, :1], ROWS[:, :1], ROWS[0], ROWS[0], MASK)
    add("cat", A.cat.default, [ROWS, ROWS[:2]], 0)
    add("cat_last", A.cat.default, [IMAGE, IMAGE[:, :2].contiguous()], -3)
    add("addmm", A.addmm.default, torch.randn(4), ROWS, torch.randn(4, 7).t())
    add("mm", A.mm.default, ROWS.t(), ROWS)
    add("bmm", A.bmm.default, IMAGE[:, 0].transpose(1, 2), IMAGE[:, 1])
    for name in ("relu", "exp", "sigmoid", "gelu", "silu", "tanh", "neg", "rsqrt", "erf", "abs", "logical_not", "sign"):
        add(name, getattr(A, name).default, ROWS)
        add(f"{name}_t", getattr(A, name).default, ROWS.t())
    for name in ("add", "mul", "sub", "div", "eq", "lt", "maximum", "pow", "atan2"):
        overload = (
            getattr(A, name).default
            if name in ("maximum", "atan2")
            else getattr(getattr(A, name), "Tensor" if name != "pow" else "Tensor_Tensor")
        )
        add(f"{name}_bc", overload, ROWS, ROWS[0])
        add(f"{name}_cross", overload, ROWS[:, :5], ROWS[:, :5].t())
        add(f"{name}_mixed", overload, ROWS, torch.tensor(3))
    add("scalar", A.mul.Tensor, ROWS, 2.5)
    add("scalar_int", A.div.Tensor, LABELS, 2)
    add("compare", A.gt.Scalar, ROWS, 0)
    add("where", A.where.self, ROWS > 0, ROWS, torch.tensor(0.0))
    for name in ("gelu_backward", "silu_backward", "tanh_backward", "sigmoid_backward"):
        add(
            name,
            getattr(A, name).default if name != "gelu_backward" else A.gelu_backward.default,
            ROWS,
            ROWS.t().contiguous().t(),
        )
    add("elu_backward", A.elu_backward.default, ROWS, 1.0, 1.0, 1.0, False, ROWS)
    add("threshold_backward", A.threshold_backward.default, ROWS, ROWS, 0)
    return found


CASES = cases()


@pytest.mark.parametrize("name", CASES)
def test_formula_agrees_with_the_kernel(name: str) -> None:
    assert predicted(*CASES[name]) == real(*CASES[name])


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_elementwise_layout_is_tensor_iterators(data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, 4))
    shape = data.draw(st.lists(st.integers(1, 4), min_size=rank, max_size=rank))
    operands = []
    for _ in range(data.draw(st.integers(1, 3))):
        own = [n if data.draw(st.booleans()) else 1 for n in shape]
        order = data.draw(st.permutations(range(rank)))
        tensor = torch.zeros([own[i] for i in order]).permute([order.index(i) for i in range(rank)])
        if rank and data.draw(st.booleans()):
            tensor = tensor.expand([n if o == 1 else o for n, o in zip(shape, own, strict=True)])
        operands.append(tensor)
    result = operands[0]
    if len(operands) == 1:
        result = operands[0].neg()
    elif len(operands) == 2:
        result = torch.add(*operands)
    else:
        result = torch.addcmul(*operands)
    assert elementwise_layout([spec_of(t) for t in operands]) == (tuple(result.shape), result.stride())

"""What an op call's operands and arguments say, whatever its family: bytes, elements, broadcasting, conversions."""

from __future__ import annotations

from placer.tracing import OpCall, TensorSpec

#: Ops of several operands that compute in one dtype (TensorIterator's ``promote_inputs_to_common_dtype``).
_PROMOTING = {
    f"aten::{name}"
    for name in (
        "add", "sub", "rsub", "mul", "div", "maximum", "minimum", "fmax", "fmin", "pow", "atan2", "remainder", "fmod",
        "addcmul", "addcdiv", "eq", "ne", "lt", "le", "gt", "ge",
    )
}  # fmt: skip


def operand_bytes(call: OpCall) -> float:
    """Bytes that all operands and results move, each once."""
    return float(sum(t.touched_bytes for t in call.inputs) + sum(t.touched_bytes for t in call.outputs))


def largest(specs: tuple[TensorSpec, ...]) -> int:
    """Elements of the largest tensor; 0 where there is none."""
    return max((t.numel for t in specs), default=0)


def is_index(spec: TensorSpec) -> bool:
    """Whether a tensor holds indices or a mask, by its dtype."""
    return spec.dtype in ("int64", "int32", "bool", "uint8")


def has_true_argument(call: OpCall) -> bool:
    """Whether an argument is True: ``transposed`` of a convolution, ``training`` of a normalization. 1 is not True."""
    return any(argument is True for argument in call.args)


def repeats(call: OpCall) -> bool:
    """Whether an operand is expanded: it stores fewer elements than it has.

    Kernels copy such an operand first, or walk it element by element. The gradient of a sum is one: a single number,
    expanded to the shape of what was summed.
    """
    return any(not is_index(t) and 0 in t.stride and 1 < t.numel > t.stored_bytes // t.item_bytes for t in call.inputs)


def converted(call: OpCall) -> str:
    """The dtype of the operand that is first copied into another dtype, such as that of a mask in a product.

    "" where there is none. On the CPU the copy costs several times what the op itself does. Zero-dimensional operands
    are converted in place and do not count.
    """
    if len(call.inputs) < 2 or call.op.rstrip("_") not in _PROMOTING:
        return ""
    dtypes = {t.dtype: t.item_bytes for t in call.inputs if t.shape}
    common = max(dtypes, key=lambda name: ("complex" in name, "float" in name, dtypes[name]), default="")
    return next((t.dtype for t in call.inputs if t.shape and t.dtype != common), "")

"""Typed shapes: what an op call works on, in named numbers. Each is read from a call in one place."""

from placer.pricing.shapes.loops import Loop, Normalization, OrderedRows, RandomNumbers, Rows, Windows
from placer.pricing.shapes.matrices import Encoder, Matrices, Transform
from placer.pricing.shapes.moves import FUSED, Index, Other, Update, View, kernels_of_update, settings
from placer.pricing.shapes.products import Attention, Convolution, ConvolutionGradient, Product
from placer.pricing.shapes.recurrent import Quantized, Recurrent
from placer.pricing.shapes.reduction import Reduction
from placer.pricing.shapes.shape import (
    FINE_GRAIN,
    GRAIN,
    ITEM,
    ONE_PIECE,
    Cut,
    Shape,
    Walk,
    cut,
    features,
    flag_names,
    has_true_argument,
    is_index,
    largest,
    of_features,
    operand_bytes,
    size_names,
)

__all__ = [
    "FINE_GRAIN", "FUSED", "GRAIN", "ITEM", "ONE_PIECE", "Attention", "Convolution",
    "ConvolutionGradient", "Cut", "Encoder", "Index", "Loop", "Matrices", "Normalization", "OrderedRows", "Other",
    "Product", "Quantized", "RandomNumbers", "Recurrent", "Reduction", "Rows", "Shape", "Transform", "Update", "View",
    "Walk", "Windows", "cut", "features", "flag_names", "has_true_argument", "is_index", "kernels_of_update", "largest",
    "of_features", "operand_bytes", "settings", "size_names",
]  # fmt: skip

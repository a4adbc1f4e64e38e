"""What an op really does, by op: its arithmetic, its memory traffic, its kernels in sequence, and its waits.

FLOPs count what an accelerator's threads execute, those of a block that idle included. They, passes, kernels and waits
are fitted to calibration/records/nvidia-h200-16-core/single_ops.jsonl.xz, where an op is far from one pass at full
bandwidth. Ops that only move or combine numbers are treated as that.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from placer.pricing import op_amounts as amount
from placer.pricing.op_amounts import Amount, Sequence
from placer.pricing.work import Effort, operand_bytes
from placer.tracing import OpCall

__all__ = ["NOTHING", "Effort", "amounts", "effort", "op_lines", "width"]


@cache
def op_cycles() -> Mapping[str, tuple[float, float, bool]]:
    """By op: cycles of a core for each unit and for each start, and whether cores share it.

    ``op_cycles.csv`` is written by ``python -m placer.calibration.fitting.op_cycles`` from records of single ops.
    """
    return read_cycles(Path(__file__).with_name("op_cycles.csv").read_text(encoding="utf-8"))


def read_cycles(text: str) -> Mapping[str, tuple[float, float, bool]]:
    """``op_cycles`` of the text of such a file."""
    rows = csv.DictReader(text.splitlines())
    return {row["op"]: (float(row["cycles"]), float(row["start_cycles"]), row["shared"] == "yes") for row in rows}


class Line(NamedTuple):
    """A line of the table: ops of one kind, by their names without ``aten::``, separated by spaces.

    ``flops`` are for each unit of ``amount``, ``each`` for each of its starts (a row, a matrix, a pair), ``passes`` go
    over operands and results, ``again`` more over results alone. ``kernels`` is a number or a function of the call.
    ``whole``: all of every operand is read, whatever the op's family says. ``cycles`` are those of ``op_cycles``, where
    no record tells them.
    """

    ops: str
    amount: Amount = amount.elements
    flops: float = 1.0
    each: float = 0.0
    passes: float = 1.0
    again: float = 0.0
    kernels: float | Sequence = 1.0
    waits: float = 0.0
    whole: bool = False
    cycles: tuple[float, float, bool] | None = None


#: The kind of ops whose arithmetic, and time on a CPU, their families know.
COUNTED = "counted"
#: The kind of layers of 8-bit weights. No calibration measures them: their prices are guesses.
QUANTIZED = "quantized"
#: Cycles of a core for each multiply-add of 8-bit numbers, of weights in half precision, and of convolutions; all else
#: is counted in cycles. Of an Intel Xeon with AVX-512 and VNNI, where float32 takes 2.8 times as long as 8 bits. By its
#: AMX convolutions reach 0.0015, and VNNI would allow 0.008: they count as between (docs/dev/findings.md).
_OF_8_BITS, _OF_HALF, _OF_CONVOLUTIONS = (0.011, 1.0, True), (0.044, 1.0, True), (0.0035, 1.0, True)
#: The lines by kind: ops that a CPU runs alike (a typical one of each: ``calibration.measuring.op_kinds``).
TABLE: Mapping[str, tuple[Line, ...]] = {
    "numbers": (
        Line("abs add addcdiv addcmul addr as_strided_scatter bitwise_and bitwise_left_shift bitwise_not bitwise_or "
             "bitwise_right_shift bitwise_xor ceil clamp clamp_max clamp_min complex copysign deg2rad div eq fill "
             "floor floor_divide fmax fmin fmod frac frexp ge gt hardshrink hardshrink_backward hardsigmoid "
             "hardsigmoid_backward hardswish_backward hardtanh hardtanh_backward heaviside huber_loss_backward hypot "
             "isinf isnan isneginf isposinf ldexp le leaky_relu leaky_relu_backward lerp logical_and logical_not "
             "logical_or logical_xor logit_backward lt masked_fill maximum minimum mul nan_to_num ne neg nextafter "
             "polar rad2deg reciprocal relu remainder round rrelu_with_noise_backward rsqrt rsub sgn sigmoid_backward "
             "sign signbit smooth_l1_loss_backward soft_margin_loss_backward softshrink softshrink_backward sqrt sub "
             "tanh_backward threshold threshold_backward trunc where xlogy _conj_physical _prelu_kernel "
             "_prelu_kernel_backward conj huber_loss mse_loss_backward square"),
        Line("angle logaddexp2 mvlgamma renorm gcd lcm", flops=20),
        Line("glu glu_backward", amount.elements, 15),
        Line("linalg_cross", amount.elements, 5),
    ),
    "functions": (
        Line("exp log exp2 log2 log10", flops=10),
        Line("sin cos log1p expm1 sigmoid elu elu_backward celu", flops=15),
        Line("cosh sinh sinc asin acos atan acosh asinh atanh logaddexp special_entr special_xlog1py erfc", flops=20),
        Line("silu", flops=18),
        Line("tanh erf pow logit", flops=20),
        Line("gelu softplus tan log_sigmoid log_sigmoid_forward log_sigmoid_backward", flops=25),
        Line("silu_backward softplus_backward", flops=25),
        Line("gelu_backward", flops=35),
        Line("mish", flops=40),
        Line("mish_backward", flops=50),
        Line("atan2", flops=30),
        Line("hardswish", flops=4),
    ),
    "special": (
        Line("erfinv i0 rrelu_with_noise", flops=60),
        Line("special_i0e special_i1 special_i1e special_bessel_j0 special_modified_bessel_i0 "
             "special_modified_bessel_i1 special_spherical_bessel_j0", flops=200),
        Line("lgamma special_log_ndtr special_ndtri", flops=300),
        Line("special_modified_bessel_k0 special_modified_bessel_k1 special_scaled_modified_bessel_k0 "
             "special_scaled_modified_bessel_k1", flops=500),
        Line("special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_chebyshev_polynomial_v "
             "special_chebyshev_polynomial_w special_shifted_chebyshev_polynomial_t "
             "special_shifted_chebyshev_polynomial_u special_shifted_chebyshev_polynomial_v "
             "special_shifted_chebyshev_polynomial_w special_hermite_polynomial_h special_hermite_polynomial_he "
             "special_laguerre_polynomial_l special_legendre_polynomial_p", flops=100),
        Line("digamma", flops=800),
        Line("special_bessel_j1 special_bessel_y0 special_bessel_y1", flops=1_400),
        Line("igamma igammac special_airy_ai", flops=3_000),
        Line("special_zeta polygamma", flops=5_000),
        Line("special_erfcx", flops=60_000),
    ),
    "copies": (
        Line("_chunk_cat _to_copy alias_copy as_strided_copy block_diag cat clone constant_pad_nd copy diag_embed "
             "diagonal_backward diagonal_copy diagonal_scatter expand_copy flip narrow_copy permute_copy repeat rot90 "
             "split_with_sizes_copy squeeze_copy stack t_copy transpose_copy tril triu unbind_copy unsqueeze_copy "
             "view_copy unfold_copy unfold_backward unsafe_split resize resize_as lu_unpack roll slice_scatter "
             "select_scatter slice_backward select_backward lift_fresh_copy _reshape_copy"),
        Line("arange eye fill full full_like linspace logspace new_full new_ones new_zeros ones ones_like "
             "scalar_tensor tril_indices triu_indices zero zeros zeros_like _efficientzerotensor squeeze transpose "
             "unsqueeze", amount.results),
        # Nothing is written: no kernel runs.
        Line("empty empty_like empty_permuted empty_strided new_empty new_empty_strided", amount.results, kernels=0),
    ),
    "shuffles": (
        Line("channel_shuffle pixel_shuffle pixel_unshuffle", flops=300, passes=2, kernels=2),
    ),
    "pads": (
        Line("reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d",
             amount.results, 20),
        Line("reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward replication_pad1d_backward "
             "replication_pad2d_backward replication_pad3d_backward", flops=60, again=1, kernels=2),
    ),
    "indexing": (
        Line("embedding index_select gather take index _unsafe_masked_index", amount.results, kernels=1),
        Line("embedding_dense_backward index_put index_put_ _index_put_impl_ put _unsafe_masked_index_put_accumulate",
             amount.elements, 20, passes=2, kernels=12),
        Line("scatter scatter_add index_add index_copy index_fill scatter_reduce index_reduce",
             amount.elements, 10, passes=2, kernels=3),
        Line("_embedding_bag _embedding_bag_forward_only", amount.bagged, 2, passes=2, kernels=3),
        Line("_embedding_bag_backward _embedding_bag_dense_backward", amount.elements, 20, passes=3, kernels=10),
        Line("_embedding_bag_per_sample_weights_backward", amount.elements, 2, kernels=2),
        Line("segment_reduce _segment_reduce_backward", amount.elements, 50, passes=2, kernels=4),
    ),
    "picking": (
        Line("masked_select nonzero argwhere nonzero_static repeat_interleave",
             amount.elements, 10, passes=3, kernels=6, waits=1, whole=True),
        Line("masked_scatter masked_scatter_backward", amount.elements, 10, passes=3, kernels=5, whole=True),
    ),
    "sums": (
        Line("sum mean amax amin max min argmax argmin prod any all nansum count_nonzero aminmax trace hash_tensor",
             amount.elements, kernels=1),
        Line("var std var_mean std_mean norm linalg_vector_norm dist", amount.elements, 4),
        Line("vdot", amount.elements, 2),
        Line("logsumexp", amount.elements, 15, passes=3, kernels=5),
    ),
    "losses": (
        Line("nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward", amount.elements),
        Line("mse_loss smooth_l1_loss l1_loss", amount.elements, 3, kernels=2),
        Line("binary_cross_entropy binary_cross_entropy_backward", amount.elements, 25, kernels=2),
        Line("binary_cross_entropy_with_logits soft_margin_loss", amount.elements, 25, passes=3, kernels=6),
        Line("multi_margin_loss multi_margin_loss_backward multilabel_margin_loss_forward "
             "multilabel_margin_loss_backward", amount.elements, 20),
        Line("allclose equal", amount.elements, 10, passes=3, kernels=12, waits=1),
    ),
    "rows": (
        Line("_softmax _log_softmax _safe_softmax _softmax_backward_data _log_softmax_backward_data", amount.rows, 12),
        Line("native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training _batch_norm_with_update "
             "cudnn_batch_norm native_layer_norm native_group_norm _fused_rms_norm", amount.elements, 8, kernels=2),
        Line("native_batch_norm_backward batch_norm_backward cudnn_batch_norm_backward native_layer_norm_backward "
             "native_group_norm_backward _fused_rms_norm_backward", amount.elements, 12, kernels=3),
    ),
    "windows": (
        Line("max_pool2d_with_indices max_pool3d_with_indices avg_pool2d avg_pool3d max_pool1d avg_pool1d "
             "adaptive_max_pool2d adaptive_max_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d fractional_max_pool2d "
             "fractional_max_pool3d", amount.windows, 2),
        Line("max_pool2d_with_indices_backward max_pool3d_with_indices_backward avg_pool2d_backward "
             "avg_pool3d_backward adaptive_max_pool2d_backward adaptive_max_pool3d_backward "
             "_adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward fractional_max_pool2d_backward "
             "fractional_max_pool3d_backward", amount.windows, 2, kernels=2),
    ),
    "unpooling": (
        Line("max_unpool2d max_unpool3d", amount.results, 10, kernels=3),
    ),
    "interpolation": (
        Line("upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d "
             "_upsample_nearest_exact2d _upsample_nearest_exact3d upsample_nearest1d_backward "
             "upsample_nearest2d_backward upsample_nearest3d_backward _upsample_nearest_exact1d_backward "
             "_upsample_nearest_exact2d_backward _upsample_nearest_exact3d_backward", amount.interpolated, 80),
        Line("upsample_linear1d upsample_bilinear2d", amount.interpolated, 250, kernels=amount.in_turns),
        Line("upsample_linear1d_backward upsample_bilinear2d_backward", amount.interpolated, 500, kernels=2),
        Line("upsample_trilinear3d", amount.interpolated, 500, kernels=amount.in_turns),
        Line("upsample_trilinear3d_backward", amount.interpolated, 1_200, kernels=2),
        Line("upsample_bicubic2d", amount.interpolated, 600, kernels=amount.in_turns),
        Line("upsample_bicubic2d_backward", amount.interpolated, 3_000, kernels=amount.in_turns),
        Line("_upsample_bilinear2d_aa _upsample_bicubic2d_aa", amount.interpolated, 300),
        Line("_upsample_bilinear2d_aa_backward _upsample_bicubic2d_aa_backward", amount.interpolated, 500, kernels=2),
    ),
    "sampling": (
        Line("grid_sampler_2d", amount.interpolated, 700),
        Line("grid_sampler_3d", amount.interpolated, 1_200),
        Line("grid_sampler_2d_backward", amount.interpolated, 3_500, kernels=2),
        Line("grid_sampler_3d_backward", amount.interpolated, 5_000, kernels=2),
    ),
    "unfolding": (
        Line("im2col", amount.columns, 250, kernels=amount.by_image),
        Line("col2im", amount.columns, 600),
    ),
    "draws": (
        Line("rand rand_like uniform randn randn_like normal randint randint_like random exponential cauchy geometric "
             "log_normal", amount.results, 60),
        Line("bernoulli dropout native_dropout", amount.results, 200, kernels=2),
        Line("native_dropout_backward dropout_backward", amount.results, 1),
        Line("poisson _standard_gamma binomial _sample_dirichlet", amount.results, 1_200, kernels=2),
        Line("randperm", amount.ordered, 10, passes=10, kernels=20),
    ),
    "multinomial": (
        Line("multinomial", amount.drawn, 100, passes=5, kernels=14),
    ),
    "sorting": (
        Line("sort argsort msort", amount.ordered, 20, 100_000, passes=10, kernels=14),
    ),
    "selection": (
        Line("topk", amount.ordered, 5, 275_000, passes=14, kernels=22),
        Line("kthvalue median nanmedian", amount.rows, 60, 190_000, passes=8, kernels=amount.by_one_block),
        Line("mode", amount.ordered, 20, 400_000, passes=8, kernels=31, waits=13),
    ),
    "unique": (
        Line("_unique2 _unique unique_dim", amount.ordered, 20, passes=15, kernels=20, waits=1),
        Line("unique_consecutive", amount.elements, 10, passes=4, kernels=12, waits=1),
    ),
    "scans": (
        Line("cumsum cumprod", amount.rows, 2, 250_000, kernels=amount.walked),
        Line("logcumsumexp", amount.rows, 300, 400_000, kernels=amount.walked),
        Line("cummax cummin", amount.rows, 60, 400_000, kernels=amount.by_one_block),
    ),
    "histograms": (
        Line("histc histogram", amount.given, 50, passes=12, kernels=8, waits=2),
        Line("_histogramdd_bin_edges", amount.given, 4, kernels=4),
        Line("_histogramdd_from_bin_cts _histogramdd_from_bin_tensors", amount.given, 50, passes=4, kernels=8),
        Line("bincount", amount.given, 50, passes=14, kernels=8, waits=2),
    ),
    "searches": (
        Line("searchsorted bucketize", amount.looked_up, 80),
        Line("isin", amount.members, 5, passes=10, kernels=60, waits=3),
    ),
    "distances": (
        Line("_pdist_forward", amount.pairs, 40, 60_000),
        Line("_pdist_backward", amount.pairs, 100, 20_000, kernels=3),
        Line("_cdist_forward", amount.pairs, 40, 83_000),
        Line("_cdist_backward", amount.pairs, 400, 40_000, kernels=6),
        Line("_euclidean_dist", amount.pairs, 2, 10, again=4, kernels=12),
    ),
    "factorisations": (
        Line("linalg_cholesky_ex cholesky", amount.cubes, 1 / 3, kernels=amount.cholesky),
        Line("linalg_lu_factor_ex linalg_lu", amount.cubes, 2 / 3, kernels=amount.lu),
        Line("linalg_ldl_factor_ex", amount.cubes, 1 / 3, kernels=amount.lu, waits=7),
        Line("_linalg_det _linalg_slogdet", amount.cubes, 2 / 3, kernels=amount.lu),
        Line("_linalg_solve_ex", amount.cubes, 2 / 3, passes=2, kernels=amount.lu_and_solve),
        Line("linalg_inv_ex", amount.cubes, 2, passes=2, kernels=amount.lu_and_solve),
    ),
    "solves": (
        Line("linalg_solve_triangular triangular_solve", amount.solves, kernels=amount.triangular),
        Line("cholesky_solve linalg_lu_solve linalg_ldl_solve", amount.solves, 2, kernels=amount.two_triangular),
        Line("cholesky_inverse", amount.cubes, 2 / 3, kernels=amount.two_triangular),
    ),
    "reflections": (
        Line("linalg_qr", amount.cubes, 8 / 3, kernels=amount.qr),
        Line("geqrf", amount.cubes, 4 / 3, kernels=amount.qr),
        Line("linalg_householder_product ormqr", amount.cubes, 4 / 3, kernels=amount.reflectors),
        Line("linalg_lstsq", amount.cubes, 2, kernels=amount.least_squares, waits=1),
    ),
    "eigenvalues": (
        Line("_linalg_svd", amount.cubes, 20, kernels=amount.svd, waits=2),
        Line("linalg_pinv", amount.cubes, 24, kernels=amount.svd, waits=2),
        Line("_linalg_eigh", amount.cubes, 9, kernels=amount.eigh, waits=2),
        Line("linalg_eig linalg_eigvals", amount.cubes, 25, kernels=amount.eig, waits=100),
        Line("linalg_matrix_exp", amount.cubes, 16, again=20, kernels=70, waits=6),
        Line("_linalg_check_errors", amount.results, waits=1),
    ),
    COUNTED: (
        Line("mm addmm bmm baddbmm mv addmv dot addbmm matmul linear _addmm_activation convolution _convolution conv1d "
             "conv2d conv3d mkldnn_convolution cudnn_convolution convolution_backward scaled_dot_product_attention "
             "scaled_dot_product_attention_backward _transformer_encoder_layer_fwd _native_multi_head_attention",
             amount.counted),
        Line("optimizer", amount.counted, kernels=amount.updated),
        Line("lstm lstm_backward gru gru_backward rnn_tanh rnn_tanh_backward rnn_relu rnn_relu_backward lstm_cell "
             "lstm_cell_backward gru_cell gru_cell_backward rnn_tanh_cell rnn_tanh_cell_backward rnn_relu_cell "
             "rnn_relu_cell_backward", amount.counted, kernels=amount.recurrent),
    ),
    QUANTIZED: (
        Line("quantized::linear quantized::linear_relu quantized::linear_leaky_relu quantized::linear_tanh "
             "quantized::linear_dynamic quantized::linear_relu_dynamic "
             "quantized::linear_with_input_q_dq_qweight_dq_output_fp32 "
             "quantized::linear_with_input_q_dq_qweight_dq_relu_output_fp32 quantized_lstm quantized_gru "
             "quantized_lstm_cell quantized_gru_cell quantized_rnn_tanh_cell quantized_rnn_relu_cell "
             "quantized::quantized_lstm_cell_dynamic quantized::quantized_gru_cell_dynamic "
             "quantized::quantized_rnn_tanh_cell_dynamic quantized::quantized_rnn_relu_cell_dynamic",
             amount.quantized_products, 2, cycles=_OF_8_BITS),
        Line("quantized::linear_dynamic_fp16 quantized::linear_relu_dynamic_fp16",
             amount.quantized_products, 2, cycles=_OF_HALF),
        Line("quantized::conv1d quantized::conv1d_relu quantized::conv1d_dynamic quantized::conv2d "
             "quantized::conv2d_relu quantized::conv2d_add quantized::conv2d_add_relu quantized::conv2d_dynamic "
             "quantized::conv3d quantized::conv3d_relu quantized::conv3d_dynamic quantized::conv_transpose1d "
             "quantized::conv_transpose1d_dynamic quantized::conv_transpose2d quantized::conv_transpose2d_dynamic "
             "quantized::conv_transpose3d quantized::conv_transpose3d_dynamic",
             amount.quantized_products, 2, cycles=_OF_CONVOLUTIONS),
        Line("quantize_per_tensor quantize_per_channel quantize_per_tensor_dynamic dequantize",
             amount.quantized_numbers, 2, cycles=_OF_8_BITS),
    ),
    "transforms": (
        Line("_fft_r2c _fft_c2r _fft_c2c", amount.counted, kernels=amount.dimensions),
        Line("_trilinear", amount.trilinear, 4, passes=4, kernels=amount.unrolled),
        Line("_linear_cross_entropy_batch_chunked _linear_cross_entropy_batch_chunked_no_reduction",
             amount.projected, 8, kernels=20),
    ),
    "sparse": (
        Line("_sparse_mm_reduce_impl _sparse_mm_reduce_impl_backward sparse_sampled_addmm",
             amount.elements, 10, passes=2, kernels=6),
        Line("_to_sparse sparse_mask _to_dense coalesce", amount.elements, 10, passes=3, kernels=10, waits=1),
    ),
    "sequences": (
        Line("_ctc_loss", amount.aligned, 60, kernels=amount.time_steps, waits=6),
        Line("_ctc_loss_backward", amount.aligned, 150, again=2, kernels=amount.time_steps, waits=3),
    ),
    "waits": (
        Line("_local_scalar_dense item", amount.results, waits=1),
    ),
}  # fmt: skip

#: Arithmetic on complex numbers in terms of real ones: products that are added up, and one product of two.
_COMPLEX_PRODUCTS, _COMPLEX = 4.0, 6.0
_COMPLEX_TYPES = frozenset(("complex64", "complex128"))
_WIDE = frozenset(("float64", *_COMPLEX_TYPES))
#: What moves nothing, and runs nowhere.
NOTHING = Effort(0.0, 0.0, 0.0)


#: Updates of lists of tensors in one kernel for each tensor, and all ops over lists.
_FUSED_UPDATES = ("aten::_fused_adam", "aten::_fused_sgd", "aten::_fused_adagrad")
_OVER_LISTS = ("_foreach_", *(name.removeprefix("aten::") for name in _FUSED_UPDATES))
#: Cycles in which a CPU starts each further tensor of a list, where 2,500 start an op (``floors.STARTING``): 50 or 100
#: tensors of 64 elements, one thread, torch 2.13: 0.8 (``_foreach_add_``) to 3 us (``_foreach_mul_`` by a number), and
#: 0.3 (SGD) to 0.7 us (Adam) in a fused update, where an op starts in 1.05 us.
_IN_FOREACH, _IN_FUSED = 3000.0, 1200.0


@cache
def _lines() -> dict[str, tuple[str, Line]]:
    return {name: (kind, line) for kind, lines in TABLE.items() for line in lines for name in line.ops.split()}


@cache
def line_of(op: str) -> tuple[str, str, Line] | None:
    """(The op's name in the table, its kind, its line), in place or not; None of an op that is not there."""
    space, _, name = op.rpartition("::")
    if space == "optimizer":
        name = space
    elif op in _lines():
        name = op
    elif name.startswith(_OVER_LISTS):
        name = "mul"
    listed = name if name in _lines() else name.rstrip("_")
    return (listed, *_lines()[listed]) if listed in _lines() else None


def kind_of(label: str) -> str:
    """The kind of an op by the name that its costs are fitted under; "" of one that is not in the table."""
    space, _, name = label.partition("::")
    found = line_of(f"{space}::{re.split('[.:/]', name)[0]}")
    return found[1] if found else ""


def op_lines() -> dict[str, list[list[str]]]:
    """The names of the ops of every line whose cycles the table tells, by kind."""
    counted = (COUNTED, QUANTIZED)
    return {kind: [line.ops.split() for line in lines] for kind, lines in TABLE.items() if kind not in counted}


def amounts(call: OpCall, flops: float) -> tuple[str, str, Line, float, float] | None:
    """(Name, kind and line of a call, its units, its starts); None of an op that is not in the table."""
    line = line_of("aten::_euclidean_dist" if amount.by_product(call) else call.op)
    return None if line is None else (*line, *line[2].amount(call, flops))


def width(call: OpCall) -> float:
    """How many times the cycles of float32 numbers a call's take: registers hold half as many float64."""
    for operand in call.inputs:
        if operand.dtype in _WIDE:
            return operand.item_bytes / 4.0
    return 1.0


def effort(call: OpCall, flops: float = 0.0, moved: float = 0.0) -> Effort | None:
    """What a call does by the table; None of an op that is not in it.

    ``flops`` and ``moved`` are the arithmetic that the op's family counts, and the bytes of one pass.
    """
    counted = amounts(call, flops)
    if counted is None:
        return None
    name, kind, line, units, starts = counted
    arithmetic = line.flops * units + line.each * starts
    for tensor in (*call.inputs, *call.outputs):
        if tensor.dtype in _COMPLEX_TYPES:
            arithmetic *= _COMPLEX_PRODUCTS if line.amount is amount.counted else _COMPLEX
            break
    written = sum(t.touched_bytes for t in call.outputs) if line.again else 0.0
    kernels = line.kernels if isinstance(line.kernels, float | int) else line.kernels(call)
    moved = operand_bytes(call) if line.whole else moved
    each, begun, shared = line.cycles or op_cycles().get(name, (0.0, 0.0, True))
    cycles = width(call) * (each * units + begun * starts)
    if call.op.startswith(("aten::_foreach_", *_FUSED_UPDATES)):
        cycles *= len(call.outputs)  # units are those of one tensor
        cycles += (len(call.outputs) - 1) * (_IN_FUSED if call.op.startswith(_FUSED_UPDATES) else _IN_FOREACH)
    return Effort(
        arithmetic, line.passes * moved + line.again * written, float(kernels), line.waits, cycles, shared, kind,
        starts,
    )  # fmt: skip

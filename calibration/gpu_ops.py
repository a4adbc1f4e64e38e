"""Single ops on an accelerator: of real sizes, timed alone and queued, with their kernels; and those of torch's tests.

Each function yields questions and what was found for them, so that whoever asks may stop at any time. The recorder is
used by all but ``timed_ops``: it makes every later launch of a process slower.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import record_function

from placer import machine
from placer.calibration.measuring import recording
from placer.calibration.measuring.events import assign
from placer.calibration.measuring.faults import cause, check, release, time_limit
from placer.nest import tensors
from placer.placement import synchronize

Question = dict[str, object]
Known = Callable[[Question], bool]
Results = Iterator[tuple[Question, dict[str, Any]]]
Shape = tuple[int, ...]
Phase = tuple[str, Callable[[], object]]
#: Looks at a call on a device.
Look = Callable[[str, Callable[[], object]], dict[str, Any]]

#: Seconds that one op is timed, at most so many times; and after which it is given up.
BUDGET, MOST, LIMIT = 0.06, 20, 15.0
#: Share of the free memory that operands may take; the rest is for results and workspaces.
MEMORY_SHARE = 0.2
#: Samples of an op of torch's database, and the dtypes of which the first that the op has is taken.
SAMPLES, DTYPES = 2, (torch.float32, torch.int64, torch.complex64, torch.bool)
MARK = "placer::single_op"

SQUARE, SMALL = ((256, 256),), ((256, 32, 32),)
ROWS, LONG = ((65536, 64),), ((1 << 22,),)
IMAGES, VOLUME = ((8, 64, 64, 64),), ((2, 8, 16, 16, 16),)
FLAT = ((16, 1 << 18),)
PAIR = ((1 << 22,), (1 << 22,))


def definite(x: Tensor) -> Tensor:
    """Symmetric and positive definite."""
    return x @ x.mT + x.shape[-1] * torch.eye(x.shape[-1], device=x.device)


def rows_of(x: Tensor) -> Tensor:
    """As many row numbers as ``x`` has rows, in disorder."""
    return (torch.arange(len(x), device=x.device) * 7919) % len(x)


#: Functions of float32 tensors, each with cases: the shapes of the operands.
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[tuple[Shape, ...], ...]]] = {
    "bmm": (torch.bmm, (((4096, 16, 16), (4096, 16, 16)), ((256, 64, 64), (256, 64, 64)))),
    "mv": (torch.mv, (((4096, 4096), (4096,)), ((256, 65536), (65536,)))),
    "mm_deep": (torch.mm, (((64, 65536), (65536, 64)), ((8192, 16), (16, 8192)))),
    "mm": (torch.mm, (((1000, 1000), (1000, 1000)), ((32, 4096), (4096, 4096)))),
    "mm_float64": (lambda x, y: x.double() @ y.double(), (((1024, 1024), (1024, 1024)),)),
    "attention": (F.scaled_dot_product_attention, (((2, 8, 512, 64),) * 3, ((1, 8, 2048, 64),) * 3)),
    "attention_causal": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), (((2, 8, 512, 64),) * 3,),
    ),
    "einsum": (lambda x, y: torch.einsum("bijl,lk->bijk", x, y), (((8, 32, 64, 64), (64, 64)),)),
    "cholesky": (lambda x: torch.linalg.cholesky(definite(x)), (SQUARE, SMALL)),
    "inv": (lambda x: torch.linalg.inv(definite(x)), (SQUARE, SMALL)),
    "solve": (lambda x: torch.linalg.solve(definite(x), x), (SQUARE, SMALL)),
    "slogdet": (lambda x: torch.linalg.slogdet(definite(x)), (SQUARE, SMALL)),
    "qr": (torch.linalg.qr, (SQUARE, SMALL)), "svd": (torch.linalg.svd, (SQUARE, SMALL)),
    "eigh": (lambda x: torch.linalg.eigh(definite(x)), (SQUARE, SMALL)),
    "eig": (torch.linalg.eig, (((128, 128),),)), "lstsq": (torch.linalg.lstsq, (((1024, 128), (1024, 8)),)),
    "matrix_exp": (lambda x: torch.linalg.matrix_exp(x / 50), (SQUARE, SMALL)),
    "cdist": (torch.cdist, (((2048, 64), (2048, 64)),)), "pdist": (F.pdist, (((1024, 64),),)),
    "cdist_1": (lambda x, y: torch.cdist(x, y, p=1.0), (((1024, 64), (1024, 64)),)),
    "cosine_similarity": (F.cosine_similarity, (ROWS * 2,)), "fft": (torch.fft.fft, (((1024, 1024),), ((64, 10007),))),
    "rfft": (torch.fft.rfft, (((1024, 1024),),)), "fft2": (torch.fft.fft2, (((16, 256, 256),),)),
    "sort": (torch.sort, (ROWS, LONG)), "argsort": (torch.argsort, (ROWS,)), "unique": (torch.unique, (LONG,)),
    "topk": (lambda x: torch.topk(x, 10), (ROWS, LONG)), "median": (lambda x: x.median(-1), (ROWS, LONG)),
    "kthvalue": (lambda x: torch.kthvalue(x, 17), (ROWS,)), "mode": (torch.mode, (ROWS,)),
    "nonzero": (lambda x: (x > 1).nonzero(), (LONG,)), "masked_select": (lambda x: x[x > 1], (LONG,)),
    "cumsum": (lambda x: x.cumsum(-1), (ROWS, LONG)), "cumsum_0": (lambda x: x.cumsum(0), (ROWS,)),
    "cumprod": (lambda x: x.cumprod(-1), (ROWS,)), "cummax": (lambda x: x.cummax(-1), (ROWS,)),
    "logcumsumexp": (lambda x: x.logcumsumexp(-1), (ROWS,)), "sum": (torch.sum, (ROWS, LONG)),
    "std": (lambda x: x.std(-1), (ROWS,)), "softmax": (lambda x: x.softmax(-1), (ROWS, FLAT)),
    "logsumexp": (lambda x: x.logsumexp(-1), (ROWS,)), "amax_0": (lambda x: x.amax(0), (ROWS,)),
    "prod": (torch.prod, (LONG,)), "histc": (lambda x: torch.histc(x, 100), (LONG,)),
    "bucketize": (lambda x, edges: torch.bucketize(x, edges.sort().values), (((1 << 20,), (64,)),)),
    "item": (lambda x: x.sum().item(), (LONG,)), "vector_norm": (torch.linalg.vector_norm, (LONG,)),
    "dropout": (F.dropout, (LONG,)), "randn_like": (torch.randn_like, (LONG,)),
    "poisson": (lambda x: torch.poisson(x.abs()), (LONG,)),
    "bernoulli": (lambda x: torch.bernoulli(x.sigmoid()), (LONG,)),
    "exponential": (lambda x: torch.empty_like(x).exponential_(), (LONG,)),
    "multinomial": (lambda x: torch.multinomial(x.abs(), 8, replacement=True), (((64, 10000),),)),
    "bilinear_up": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (IMAGES,)),
    "bicubic_up": (lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), (IMAGES,)),
    "nearest_up": (lambda x: F.interpolate(x, scale_factor=2), (IMAGES,)),
    "trilinear_up": (lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), (VOLUME,)),
    "grid_sample": (lambda x, grid: F.grid_sample(x, grid.tanh(), align_corners=False), ((*IMAGES, (8, 64, 64, 2)),)),
    "unfold": (lambda x: F.unfold(x, 3, padding=1), (IMAGES,)),
    "fold": (lambda x: F.fold(x, (64, 64), 3, padding=1), (((2, 576, 4096),),)),
    "max_pool": (lambda x: F.max_pool2d(x, 3, 2, 1), (IMAGES,)),
    "avg_pool": (lambda x: F.avg_pool2d(x, 3, 2, 1), (IMAGES,)),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2), (VOLUME,)),
    "adaptive_avg_pool": (lambda x: F.adaptive_avg_pool2d(x, 7), (IMAGES,)),
    "reflection_pad": (lambda x: F.pad(x, (2, 2, 2, 2), mode="reflect"), (IMAGES,)),
    "permute_copy": (lambda x: x.permute(0, 2, 3, 1).contiguous(), (IMAGES,)),
    "roll": (lambda x: x.roll(3, -1), (IMAGES,)),
    "layer_norm": (lambda x: F.layer_norm(x, x.shape[-1:]), (ROWS, FLAT)),
    "instance_norm": (F.instance_norm, (IMAGES,)),
    "group_norm": (lambda x: F.group_norm(x, 8), (IMAGES,)),
    "rms_norm": (lambda x: F.rms_norm(x, x.shape[-1:]), (ROWS,)),
    "cross_entropy": (lambda x: F.cross_entropy(x, rows_of(x) % x.shape[1]), (((4096, 1000),), ((512, 50257),))),
    "bce": (lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()), (PAIR,)), "mse": (F.mse_loss, (PAIR,)),
    "embedding": (lambda x: F.embedding(rows_of(x), x), (((50000, 256),),)),
    "index_select": (lambda x: x.index_select(0, rows_of(x)), (ROWS,)),
    "index_add": (lambda x, y: x.index_add(0, rows_of(y) % len(x), y), (((1000, 64), (65536, 64)),)),
    "index_put": (lambda x, y: x.index_put((rows_of(y) % len(x),), y, accumulate=True), (((1000, 64), (65536, 64)),)),
    "gather": (lambda x: x.gather(0, rows_of(x)[:, None].expand_as(x)), (ROWS,)),
    "scatter_add": (lambda x: torch.zeros_like(x).scatter_add(0, rows_of(x)[:, None].expand_as(x), x), (ROWS,)),
    "sparse_mm": (lambda x, y: (x > 2.5).float().to_sparse() @ y, (((4096, 4096), (4096, 64)),)),
    "where": (lambda x: torch.where(x > 0, x, 0.5 * x), (FLAT,)), "clamp": (lambda x: x.clamp(-1, 1), (FLAT,)),
    "pow": (lambda x: x.abs().pow(2.5), (FLAT,)), "add_row": (lambda x, y: x + y, (((65536, 64), (64,)),)),
    **{name: (getattr(torch, name), (LONG,)) for name in (
        "exp", "log", "sin", "tan", "tanh", "erf", "erfinv", "lgamma", "digamma", "sigmoid", "sqrt", "rsqrt", "neg",
    )},
    **{name: (getattr(torch.special, name), (LONG,)) for name in ("i0e", "bessel_j0", "ndtri", "airy_ai", "entr")},
    **{name: (getattr(F, name), (FLAT,)) for name in (
        "gelu", "silu", "mish", "softplus", "elu", "hardswish", "logsigmoid", "glu", "normalize",
    )},
    **{name: (getattr(torch, name), (PAIR,)) for name in ("div", "fmod", "atan2", "hypot", "maximum", "dot")},
}  # fmt: skip

#: Layers, each with the shapes of an input.
LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[Shape, ...]]] = {
    "lstm": (lambda: nn.LSTM(128, 256), ((64, 32, 128),)), "gru": (lambda: nn.GRU(128, 256), ((64, 32, 128),)),
    "lstm_2_layers": (lambda: nn.LSTM(256, 512, 2), ((32, 16, 256),)),
    "rnn": (lambda: nn.RNN(128, 256), ((64, 32, 128),)),
    "lstm_bidirectional": (lambda: nn.LSTM(128, 256, bidirectional=True), ((64, 32, 128),)),
    "conv2d": (lambda: nn.Conv2d(64, 64, 3, padding=1), ((8, 64, 56, 56), (1, 64, 14, 14))),
    "conv2d_1x1": (lambda: nn.Conv2d(256, 64, 1), ((8, 256, 56, 56),)),
    "conv2d_first": (lambda: nn.Conv2d(3, 64, 7, stride=2, padding=3), ((8, 3, 224, 224),)),
    "conv2d_dilated": (lambda: nn.Conv2d(64, 64, 3, padding=4, dilation=4), ((8, 64, 64, 64),)),
    "conv2d_grouped": (lambda: nn.Conv2d(128, 128, 3, padding=1, groups=32), ((16, 128, 56, 56),)),
    "conv2d_depthwise": (lambda: nn.Conv2d(128, 128, 3, padding=1, groups=128), ((16, 128, 56, 56),)),
    "conv2d_31x31": (lambda: nn.Conv2d(16, 16, 31, padding=15), ((1, 16, 64, 64),)),
    "conv1d": (lambda: nn.Conv1d(64, 128, 31, padding=15), ((4, 64, 4096),)),
    "conv3d": (lambda: nn.Conv3d(32, 64, 3, padding=1), ((1, 32, 16, 32, 32),)),
    "conv_transpose2d": (lambda: nn.ConvTranspose2d(64, 32, 4, stride=2, padding=1), ((8, 64, 32, 32),)),
    "conv_transpose3d": (lambda: nn.ConvTranspose3d(32, 16, 3, stride=2), ((1, 32, 16, 16, 16),)),
    "batch_norm": (lambda: nn.BatchNorm2d(64), ((16, 64, 128, 128), (128, 64, 28, 28))),
    "multihead_attention": (lambda: nn.TransformerEncoderLayer(256, 8, batch_first=True), ((16, 128, 256),)),
}  # fmt: skip


def cases() -> Iterator[tuple[str, tuple[Shape, ...], Callable[..., Any]]]:
    """(name, shapes of the operands, what makes the function) of every op, the first case of each first."""
    every: list[tuple[int, str, tuple[Shape, ...], Callable[..., Any]]] = []
    for name, (layer, inputs) in LAYERS.items():
        every += [(number, name, (shape,), layer) for number, shape in enumerate(inputs)]
    for name, (function, known) in FUNCTIONS.items():
        every += [(number, name, shapes, lambda function=function: function) for number, shapes in enumerate(known)]
    for _, name, shapes, make in sorted(every, key=lambda case: case[0]):
        yield name, shapes, make


def phases(device: str, shapes: tuple[Shape, ...], make: Callable[..., Any]) -> list[Phase]:
    """The calls of one op: forward, and backward where something floating of its result has a gradient."""
    needs = sum(4.0 * torch.Size(shape).numel() for shape in shapes)
    free = machine.memory(device)[0]
    if needs > MEMORY_SHARE * free:
        raise MemoryError(f"needs {needs:.3g} bytes, {free:.3g} are free")
    with torch.device(device):
        function = make()
        operands = [torch.randn(shape, requires_grad=True) for shape in shapes]
    leaves = [*operands, *(function.parameters() if isinstance(function, nn.Module) else ())]

    def forward() -> object:
        with torch.no_grad():
            return function(*operands)

    return [("forward", forward), *backward_of(function(*operands), leaves)]


def backward_of(result: object, leaves: list[Tensor]) -> list[Phase]:
    """The gradient of a result by its leaves, again and again; none where it has no gradient."""
    outputs = [t for t in tensors(result) if t.requires_grad]
    if not outputs or not leaves:
        return []
    ones = [torch.ones_like(t) for t in outputs]
    return [("backward", lambda: torch.autograd.grad(outputs, leaves, ones, retain_graph=True, allow_unused=True))]


def timed_ops(device: str, known: Known) -> Results:
    """Seconds of each op alone, until a call is issued, and of a call behind others in the queue."""
    return single_ops(device, known, "seconds", timed)


def recorded_ops(device: str, known: Known) -> Results:
    """The kernels of each op."""
    return single_ops(device, known, "kernels", kernels)


def single_ops(device: str, known: Known, what: str, look: Look) -> Results:
    """What ``look`` finds of each op; raises BrokenDeviceError where the device runs nothing any more."""
    for name, shapes, make in cases():
        question: Question = {"op": name, "shapes": [list(shape) for shape in shapes], "what": what}
        if not known({**question, "phase": "forward"}):
            yield from attempted(device, question, partial(phases, device, shapes, make), look)


def attempted(device: str, question: Question, prepare: Callable[[], list[Phase]], look: Look) -> Results:
    """What ``look`` finds of each phase; an error instead where the device refuses the op."""
    error = None
    try:
        with time_limit(LIMIT, str(question["op"])):
            found = [(phase, look(device, call)) for phase, call in prepare()]
        yield from (({**question, "phase": phase}, seen) for phase, seen in found)
    except Exception as raised:  # noqa: BLE001  a backend that refuses an op is a finding
        error = cause(raised)
    if error is not None:  # outside of the except clause, whose traceback holds the operands
        release(device)
        check(device)
        yield {**question, "phase": "forward"}, {"error": error}


def timed(device: str, call: Callable[[], object]) -> dict[str, float]:
    """Seconds of a call on an idle device, until it is issued, and behind others; it is run twice before."""

    def seconds(calls: int) -> tuple[float, float]:
        synchronize(device)
        start = time.perf_counter()
        for _ in range(calls):
            call()
        issued = time.perf_counter() - start
        synchronize(device)
        return (time.perf_counter() - start) / calls, issued / calls

    call()
    alone = [seconds(1)[0]]
    end = time.perf_counter() + BUDGET
    while len(alone) < MOST and time.perf_counter() < end:
        alone.append(seconds(1)[0])
    queued, issued = seconds(max(2, min(50, int(BUDGET / 2 / max(min(alone), 1e-5)))))
    return {"isolated": statistics.median(alone), "issue": issued, "queued": queued}


def kernels(device: str, call: Callable[[], object]) -> dict[str, Any]:
    """What a call launches, as a session of its own shows it: kernels with their microseconds, and its waits."""
    shown = recording.kind_shown()
    call()
    with recording.recorder_of(recording.activities(shown)) as session:
        recording.give_away_kernels(torch.device(device), lambda: synchronize(device))
        with record_function(MARK):
            call()
        synchronize(device)
    found = assign(event for event in map(recording.read_event, recording.raw_events(session)) if event is not None)
    mark = next(event for event in found.host if event.name == MARK)
    inside = [event for event in found.host if mark.start_ns <= event.start_ns < mark.end_ns]
    work = [work for event in inside for work in found.work.get(event.number, ())]
    calls = [call.name for event in inside for call in found.calls.get(event.number, ())]
    launches, lost = found.launches(mark.start_ns, mark.end_ns)
    return {
        "kernels": [[event.name[:90], (event.end_ns - event.start_ns) / 1e3] for event in work],
        "launches": launches, "lost": lost, "waits": [name for name in calls if "Synchronize" in name],
    }  # fmt: skip


def database_ops(device: str, known: Known) -> Results:
    """The kernels of some samples of each op of torch's own tests."""
    from torch.testing._internal.common_methods_invocations import op_db

    for info in op_db:
        dtype = next((dtype for dtype in DTYPES if dtype in info.supported_dtypes(device)), None)
        question: Question = {"op": info.name, "variant": info.variant_test_name, "dtype": str(dtype)}
        if dtype is None or known({**question, "sample": 0, "phase": "forward"}):
            continue
        learns = info.supports_autograd and dtype.is_floating_point
        try:
            samples = list(islice(info.sample_inputs(device, dtype, requires_grad=learns), SAMPLES))
        except Exception as error:  # noqa: BLE001  an op without samples for this device
            yield {**question, "sample": 0, "phase": "forward"}, {"error": cause(error)}
            continue
        for number, sample in enumerate(samples):
            asked = {**question, "sample": number}
            yield from attempted(device, asked, partial(phases_of_sample, info, sample), kernels)


def phases_of_sample(info: Any, sample: Any) -> list[Phase]:
    """The calls of a sample of torch's op database."""

    def forward() -> object:
        return info.op(sample.input, *sample.args, **sample.kwargs)

    leaves = [t for t in tensors((sample.input, sample.args, sample.kwargs)) if t.requires_grad]
    return [("forward", forward), *backward_of(forward(), leaves)]


def sessions(device: str, known: Known) -> Results:
    """Kernels of a known chain that session after session of the recorder loses; each second one has some to lose."""
    shown = recording.kind_shown()
    if shown != torch.device(device).type:
        yield {"what": "recorder"}, {"error": f"torch's recorder shows no kernels of {device} here"}
        return
    tiny = torch.ones(8, device=device)
    tiny.neg_()
    for number in range(40):
        prefix = number + recording.GIVEN_AWAY if number % 2 else 0
        with recording.recorder_of(recording.activities(shown)) as session:
            for _ in range(prefix):
                tiny.neg_()
            with record_function(recording.STEP_MARK):
                start = time.perf_counter()
                for _ in range(50):
                    tiny.neg_()
                issued = (time.perf_counter() - start) / 50
                synchronize(device)
        steps = list(recording.read_steps(recording.raw_events(session)))
        launches, lost = steps[0][1:] if steps else (0, 0)
        found = {"launches": launches, "lost": lost, "issue_seconds": issued}
        yield {"what": "session", "number": number, "prefix": prefix}, found

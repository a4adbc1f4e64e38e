"""The networks of the published steps, built without weights: each step as a workload, and its trace.

torchvision, timm and transformers build them; where one is missing, that is an ImportError.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn import functional

from placer.calibration.lab.published.plain_networks import PLAIN, NeuMF
from placer.calibration.lab.published.table import PublishedStep
from placer.errors import TraceError, first_line
from placer.tracing import OpCall, Trace, trace
from placer.workload import Workload

#: A real run of a language model of a few hundred million parameters takes up to a minute on a CPU.
LIMIT_SECONDS = 600.0
#: Ops that torchvision's import describes, and that only its compiled library defines.
_COMPILED = ("nms", "qnms")
#: Holds the definitions: they end with the object.
_definitions: list[Any] = []
_DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float64": torch.float64}


def identity(step: PublishedStep) -> str:
    """Sixteen characters that are equal for steps with equal traces."""
    what = (
        step.builder, step.arguments, step.inputs, step.dtype, step.channels_last, step.mode, step.optimizer, step.loss,
        step.gradients,
    )  # fmt: skip
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]


def trace_step(step: PublishedStep, *, compiled: bool = False) -> Trace:
    """The op calls of a published step; with ``compiled``, of the same step with its model in ``torch.compile``.

    No source copies the result back to the host, so ``Trace.outputs`` is empty. Where gradients are kept from step to
    step, the backward pass adds to them; where they are cleared inside the step, that is a call for each of them. A
    loss outside the timed part has no calls. Where calls are added or left out there are no memory events, which
    number them.

    Raises:
        ImportError: the package that builds the network is not installed.
        TraceError: it cannot be traced.
    """
    traced = replace(_traced(step, compiled).on("cuda"), outputs=())
    calls = traced.calls
    if step.loss.endswith("not timed"):
        calls = tuple(call for call in calls if call.phase != "loss")
    if step.gradients.endswith("added to"):
        calls = with_kept_gradients(traced, calls, cleared=step.gradients.startswith("cleared"))
    return traced if calls is traced.calls else replace(traced, calls=calls, dataflow=())


def _traced(step: PublishedStep, compiled: bool) -> Trace:
    load_torchvision()
    with _as_published(step.builder):
        try:
            return trace(build(step, "meta", compiled=compiled))
        except TraceError:  # the step reads values, which the meta device does not have
            return trace(build(step, "cpu", compiled=compiled), limit_seconds=LIMIT_SECONDS)


def load_torchvision() -> None:
    """Import torchvision where it is installed, as timm and transformers do, also where its compiled ops do not load.

    Its wheel may be made for another build of torch. Its networks for classification need none of these ops. Raises
    what its import raises.
    """
    if find_spec("torchvision") is None:
        return
    try:
        import torchvision
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in _COMPILED:
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _definitions.append(library)
        import torchvision  # noqa: F401


def with_kept_gradients(traced: Trace, calls: tuple[OpCall, ...], cleared: bool) -> tuple[OpCall, ...]:
    """``calls`` with an addition for each gradient after the backward pass, and its clearing before all else."""
    gradients = traced.parameters
    add = tuple(OpCall("aten::add_", (g, g), (g,), (1,), phase="backward", in_place=True) for g in gradients)
    clear = tuple(OpCall("aten::zero_", (g,), (g,), phase="forward", in_place=True) for g in gradients)
    update = next((i for i, call in enumerate(calls) if call.phase == "optimizer"), len(calls))
    return (*(clear if cleared else ()), *calls[:update], *add, *calls[update:])


def build(step: PublishedStep, device: str = "meta", *, compiled: bool = False) -> Workload:
    """The workload of a published step, with its untrained model and its inputs on ``device``.

    Raises ImportError where the package that builds the network is not installed, TraceError where it cannot build it.
    """
    dtype = _DTYPES.get(step.dtype)
    model = _model(step, device)
    if dtype is not None:
        model = model.to(dtype)
    if step.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    named = {
        given.get("name", position) if isinstance(given, dict) else position: _input(given, dtype, step, device)
        for position, given in enumerate(step.inputs)
    }
    args = [tensor for name, tensor in named.items() if isinstance(name, int)]
    return Workload(
        model=torch.compile(model) if compiled else model,
        modules=(model,),
        args=(*args, *_cached(step, model, device)),
        kwargs={name: tensor for name, tensor in named.items() if isinstance(name, str)},
        mode=step.mode,
        loss=_loss(step, device),
        optimizer=_optimizer(step, model),
        data=step.data,
        autocast=_DTYPES[step.dtype.removeprefix("amp-")] if step.dtype.startswith("amp-") else None,
    )


def _model(step: PublishedStep, device: str) -> nn.Module:
    """Raises ImportError without the package, and TraceError where the one that is installed has no such network."""
    makers: dict[str, Callable[[PublishedStep], nn.Module]] = {
        "torchvision": _torchvision,
        "timm": _timm,
        "transformers": _transformers,
        "neumf": lambda _: NeuMF(),
        "plain": lambda step: PLAIN[step.arguments["name"]](),
    }
    make = makers[step.builder]
    try:
        try:
            with torch.device(device):
                return make(step)
        except RuntimeError:  # its constructor reads values, which the meta device does not have
            return make(step).to(device)
    except ImportError:
        raise
    except Exception as error:  # the boundary to names in a table, and to any version of somebody's package
        network = step.network.removeprefix(f"{step.builder}:")
        why = f"{type(error).__name__}, {first_line(error)}"
        raise TraceError(f"{network} cannot be built by the {step.builder} that is installed: {why}") from error


def _input(given: Any, dtype: torch.dtype | None, step: PublishedStep, device: str) -> Tensor:
    shape = given["shape"] if isinstance(given, dict) else given
    if isinstance(given, dict) and given.get("dtype") == "int64":
        return torch.zeros(shape, dtype=torch.int64, device=device)
    tensor = torch.empty(shape, dtype=dtype, device=device)
    if step.channels_last and tensor.dim() == 4:
        tensor = tensor.contiguous(memory_format=torch.channels_last)
    return tensor


def _loss(step: PublishedStep, device: str) -> Callable[..., Any] | None:
    """A loss against classes that are on the device already; None: a sum of the outputs.

    A language model predicts a class for each token.
    """
    if not step.loss.startswith("cross-entropy"):
        return None
    tokens = step.inputs[0]["shape"] if isinstance(step.inputs[0], dict) else [step.batch]
    classes = torch.zeros(math.prod(tokens), dtype=torch.int64, device=device)
    return partial(_cross_entropy, target=classes)


def _cross_entropy(output: Any, target: Tensor) -> Tensor:
    named = [output[name] for name in ("prediction_logits", "logits") if isinstance(output, Mapping) and name in output]
    logits = named[0] if named else output[0] if isinstance(output, (tuple, list)) else output
    return functional.cross_entropy(logits if logits.dim() == 2 else logits.view(len(target), -1), target)


def _optimizer(step: PublishedStep, model: nn.Module) -> torch.optim.Optimizer | None:
    """The optimizer inside the step; None where no update is inside."""
    if not step.optimizer:
        return None
    name, _, alone = step.optimizer.partition(", ")
    foreach = False if alone else None
    parameters = [p for p in model.parameters() if p.requires_grad]
    if name == "sgd nesterov":
        return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, nesterov=True, foreach=foreach)
    return torch.optim.Adam(parameters, lr=1e-3, foreach=foreach)


def _torchvision(step: PublishedStep) -> nn.Module:
    models = importlib.import_module("torchvision.models")
    how = step.arguments
    options = dict(how.get("options", {}))
    if "group_norm" in how:
        options["norm_layer"] = partial(nn.GroupNorm, how["group_norm"])
    builder = getattr(models, how["name"], None)
    if builder is None:
        raise TraceError(f"torchvision has no network {how['name']!r}")
    built: nn.Module = builder(weights=None, **options)
    return built


def _timm(step: PublishedStep) -> nn.Module:
    """A network of timm, as the release behind the benchmark file ran it. Of ``step.arguments``:

    ``fused_attention`` False: two products and a softmax. ``half_norms``: which norms run in half precision under
    autocast, which else keeps them in float32: those that stand between convolutions, or all of timm's own.
    ``merged``: parallel branches and batch norms are merged into one convolution each.

    The files do not name these; their times do. From torch 1.13 on, inference of group-normalised networks moves 1.4 to
    1.9 times the GPU's bandwidth if norms were float32, and half of what it took with torch 1.12. With torch 2.9,
    MobileOne's inference takes a fifth to a half of its time with 2.4, which only merged branches explain. Before that
    file, vision transformers took ``nn.LayerNorm``, which has no half-precision form.
    """
    timm = importlib.import_module("timm")
    how = step.arguments
    timm.layers.set_fused_attn(how.get("fused_attention", True))
    try:
        built = _created(timm, how["name"], step.inputs[0][-2:], how.get("options", {}))
    finally:
        timm.layers.set_fused_attn(True)
    halves = how.get("half_norms")
    convnext = isinstance(built, timm.models.convnext.ConvNeXt)
    norms: list[Any] = [m for m in built.modules() if isinstance(m, (nn.LayerNorm, nn.GroupNorm))]
    for norm in norms:
        between_products = type(norm) is timm.layers.LayerNorm and not convnext
        norm._fast_norm = halves == "all" or (halves == "convolutional" and not between_products)
    if how.get("merged"):
        built = timm.utils.reparameterize_model(built.eval(), inplace=True)
    return built


def _created(timm: Any, name: str, size: Sequence[int], options: dict[str, Any]) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # timm tells of each renamed network
        built: nn.Module = timm.create_model(name, pretrained=False, **options)
        given = getattr(built, "default_cfg", {}).get("input_size", (3, 0, 0))[-2:]
        if tuple(given) != tuple(size):
            with contextlib.suppress(TypeError):  # a network for images of any size takes no img_size
                built = timm.create_model(name, pretrained=False, **options, img_size=tuple(size))
    return built


def _transformers(step: PublishedStep) -> nn.Module:
    """A network of transformers from the sizes of its published configuration: nothing is downloaded."""
    transformers = importlib.import_module("transformers")
    how = step.arguments
    config = getattr(transformers, how["config"])(**how.get("sizes", {}))
    decodes = "cached_tokens" in how
    if not decodes:
        # A first forward pass filled no cache until transformers 4.36, and copies nothing into it since.
        config.use_cache = False
    kind = getattr(transformers, how["model"])
    built: nn.Module = kind._from_config(config, attn_implementation=how["attention"])
    return DecodeStep(built, transformers.cache_utils) if decodes else built


class DecodeStep(nn.Module):
    """One token for each text, with the keys and values of the tokens before it."""

    def __init__(self, model: nn.Module, caches: Any) -> None:
        super().__init__()
        self.model = model
        self._cache, self._layer = caches.DynamicCache, caches.DynamicLayer

    def forward(self, token: Tensor, *cached: Tensor) -> Any:
        """Logits of the next token. ``cached``: keys and values, layer by layer."""
        cache = self._cache()
        for keys, values in zip(cached[::2], cached[1::2], strict=True):
            layer = self._layer()
            layer.keys, layer.values, layer.is_initialized = keys, values, True
            layer.dtype, layer.device = keys.dtype, keys.device
            cache.layers.append(layer)
        return self.model(token, past_key_values=cache, use_cache=True).logits


def _cached(step: PublishedStep, model: nn.Module, device: str) -> list[Tensor]:
    """Keys and values of the tokens that a decoding step finds in its cache, layer by layer; else none."""
    if not isinstance(model, DecodeStep):
        return []
    config: Any = model.model.config
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = config.hidden_size // config.num_attention_heads
    shape = (step.batch, heads, step.arguments["cached_tokens"], width)
    dtype = _DTYPES.get(step.dtype)
    return [torch.empty(shape, dtype=dtype, device=device) for _ in range(2 * config.num_hidden_layers)]


@contextlib.contextmanager
def _as_published(builder: str) -> Iterator[None]:
    """Trace what the published releases ran, where today's differ in what a trace sees.

    timm's half-precision norms switch autocast off around themselves, which a trace does not see; autocast has no list
    for the ops underneath. Today's transformers reads whether texts are packed into one row, and whether a mask hides
    anything: the host waits for both, and tensors without values cannot answer. Neither holds for the published steps.
    """
    with contextlib.ExitStack() as stack:
        if builder == "timm":
            for home in ("timm.layers.norm", "timm.layers.norm_act"):
                module = importlib.import_module(home)
                stack.enter_context(mock.patch.object(module, "fast_layer_norm", _layer_norm))
                stack.enter_context(mock.patch.object(module, "fast_group_norm", _group_norm))
        if builder == "transformers":
            masking = importlib.import_module("transformers.masking_utils")
            for name, answer in (("find_packed_sequence_indices", None), ("fast_all", True)):
                if hasattr(masking, name):
                    stack.enter_context(mock.patch.object(masking, name, return_value=answer))
        yield


def _layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    return torch.native_layer_norm(_half(x), shape, _half(weight), _half(bias), eps)[0]


def _group_norm(
    x: Tensor, groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    count, channels, *area = x.shape
    half = _half(x).contiguous()
    return torch.native_group_norm(half, _half(weight), _half(bias), count, channels, math.prod(area), groups, eps)[0]


def _half(tensor: Tensor | None) -> Any:
    return None if tensor is None else tensor.to(torch.float16)

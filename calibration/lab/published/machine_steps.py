"""Which network each published row of a whole step is.

Rows of networks that the installed packages do not build, of steps whose time is another thing (a data loader's, a
compiled step's), and of GPUs elsewhere say so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from placer.calibration.lab.published.machines import MachineStep
from placer.calibration.lab.published.table import PublishedStep
from placer.errors import TraceError

#: Images of torchvision's networks where a row does not say; timm knows its own.
_IMAGE = (3, 224, 224)
#: Sizes of images of timm's networks that its names do not tell.
_TIMM_SIZES = {
    "adv_inception_v3": 299, "inception_v3": 299, "sebotnet33ts_256": 256, "cait_m36_384": 384, "crossvit_9_240": 240,
}  # fmt: skip
#: From when on the dashboards' timm runs attention as one op.
_FUSED_SINCE = "2023-10"

_T5 = {"config": "T5Config", "model": "T5ForConditionalGeneration"}
_LARGE = {"d_model": 1024, "d_kv": 64, "d_ff": 4096, "num_layers": 24, "num_heads": 16}
_BASE = {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12}
#: Networks of transformers by a part of what the rows call them: config and model, sizes, and tokens where the row says
#: "not checked" (those of torchbench's basic_configs.py, of which a CPU gets a fourth of GPT-2's).
_LANGUAGE: Mapping[str, dict[str, Any]] = {
    "t5-base": {**_T5, "sizes": _BASE, "tokens": 2048},
    "t5-large": {**_T5, "sizes": _LARGE, "tokens": 512},
    "t5-small": {**_T5},
    "gpt2-large": {
        "config": "GPT2Config", "model": "GPT2LMHeadModel", "tokens": 1024,
        "sizes": {"n_embd": 1280, "n_layer": 36, "n_head": 20},
    },
    "gpt2,": {"config": "GPT2Config", "model": "GPT2LMHeadModel"},
    "BigBirdConfig": {"config": "BigBirdConfig", "model": "BigBirdForMaskedLM"},
    "AlbertForMaskedLM": {"config": "AlbertConfig", "model": "AlbertForMaskedLM"},
    "AlbertForQuestionAnswering": {"config": "AlbertConfig", "model": "AlbertForQuestionAnswering"},
    "MT5": {"config": "MT5Config", "model": "MT5ForConditionalGeneration"},
    "RobertaForCausalLM": {"config": "RobertaConfig", "model": "RobertaForCausalLM"},
    "XLNet": {"config": "XLNetConfig", "model": "XLNetLMHeadModel"},
}  # fmt: skip


def network_of(row: MachineStep) -> PublishedStep:
    """What builds a row's step. Raises TraceError where it cannot be built, or is not to be used."""
    if row.device == "cuda" or not row.host:
        raise TraceError("a GPU's step")
    if row.compiled:
        raise TraceError("a compiled step")
    if "the machine was disturbed" in row.notes:
        raise TraceError("machine disturbed")
    if "loader" in row.notes or "loader" in row.mode:
        raise TraceError("the loader is inside")
    if "forward" not in row.mode:
        raise TraceError("a step whose loss and optimizer are not stated")
    builder, arguments, inputs = _built(row)
    nothing = dict.fromkeys(("gpu", "family", "optimizer", "loss", "gradients", "torch"), "")
    return PublishedStep(
        **nothing,
        source=row.source,
        network=row.network,
        builder=builder,
        arguments=arguments,
        inputs=inputs,
        batch=row.batch,
        dtype="amp-bfloat16" if row.dtype.startswith("amp") else row.dtype,
        conv_tf32=False,
        channels_last=False,
        mode="train" if "backward" in row.mode else "infer",
        data="device",
        seconds=row.seconds,
        compiled_seconds=None,
        use="check",
    )


def _built(row: MachineStep) -> tuple[Any, dict[str, Any], list[Any]]:
    """(builder, arguments, inputs) of a network. Raises TraceError."""
    home, _, name = row.network.partition(":")
    own = next((known for part, known in _OWN.items() if part in row.network), None)
    if own is not None:
        builder, arguments, shape = own
        return builder, arguments, [[row.batch, *shape]]
    if "basic_gnn_gin" in row.network:  # 10,000 nodes, 200,000 edges (torchbench's BasicGNNModel)
        return "plain", {"name": "gin"}, [[10_000, 64], {"shape": [2, 200_000], "dtype": "int64"}]
    if home == "torchvision":
        return "torchvision", {"name": name}, [[row.batch, *_image(row.input, _IMAGE)]]
    if home == "timm":
        size = _TIMM_SIZES.get(name, _IMAGE[-1])
        fused = row.date >= _FUSED_SINCE
        arguments = {"name": name.removeprefix("adv_"), "fused_attention": fused}
        return "timm", arguments, [[row.batch, *_image(row.input, (3, size, size))]]
    known = next((known for part, known in _LANGUAGE.items() if part in row.network), None)
    if home == "transformers" and known is not None:
        return "transformers", {**known, "attention": "eager"}, _texts(row, known)
    raise TraceError("a network that no installed package builds")


#: Networks that a row itself describes, by a part of its name: builder, arguments, and the shape of a sample.
_OWN: Mapping[str, tuple[str, dict[str, Any], tuple[int, ...]]] = {
    "functorch_dp_cifar10": (
        "torchvision", {"name": "resnet18", "options": {"num_classes": 10}, "group_norm": 32}, (3, 32, 32),
    ),
    "efficientnet_b0": ("torchvision", {"name": "efficientnet_b0"}, _IMAGE),
    "maml_omniglot": ("plain", {"name": "omniglot"}, (1, 28, 28)),
    "phlippe_densenet": ("plain", {"name": "small_densenet"}, (3, 32, 32)),
    "scvi-tools SCVI": ("plain", {"name": "counts"}, (1200,)),
}  # fmt: skip


def _image(text: str, otherwise: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(int, text.split("x"))) if re.fullmatch(r"\d+(x\d+)+", text) else otherwise


def _texts(row: MachineStep, known: Mapping[str, Any]) -> list[Any]:
    """Tokens, those of the decoder, and labels where the loss is inside."""
    said = re.match(r"(\d+) tokens", row.input)
    tokens = int(said[1]) if said else known.get("tokens")
    if tokens is None:
        raise TraceError("a number of tokens that nobody states")
    text = {"shape": [row.batch, tokens], "dtype": "int64"}
    found = [{**text, "name": "input_ids"}]
    if "T5" in known["config"]:
        found.append({**text, "name": "decoder_input_ids"})
    if "labels given" in row.input:
        names = ("start_positions", "end_positions") if "QuestionAnswering" in known["model"] else ("labels",)
        found += [{**text, "name": name, **({"shape": [row.batch]} if len(names) > 1 else {})} for name in names]
    return found

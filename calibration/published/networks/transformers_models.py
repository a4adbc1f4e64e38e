"""Hugging Face's networks, built from the sizes of their published configurations: nothing is downloaded."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from placer.calibration.published.networks.not_built import NotBuilt
from placer.calibration.published.networks.torchvision_models import load_torchvision
from placer.calibration.published.steps import PublishedStep

Example = tuple[tuple[Tensor, ...], dict[str, Any]]


@dataclass(frozen=True)
class Network:
    """A class of ``transformers``, its configuration's class, and the sizes that differ from the latter's defaults.

    ``training`` is the class of training steps, where it is another. ``mask``: the network always adds an attention
    mask to the scores, as BERT did until the mask of ones became no mask.
    """

    model: str
    config: str
    sizes: Mapping[str, Any] = field(default_factory=dict)
    training: str = ""
    mask: bool = False


def _bert(width: int, layers: int, model: str = "BertModel", training: str = "") -> Network:
    sizes = {
        "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": width // 64,
        "intermediate_size": 4 * width,
    }  # fmt: skip
    return Network(model, "BertConfig", sizes, training, mask=True)


def _gpt2(width: int, layers: int, heads: int, positions: int) -> Network:
    return Network(
        "GPT2LMHeadModel", "GPT2Config",
        {"n_embd": width, "n_layer": layers, "n_head": heads, "n_positions": positions},
    )  # fmt: skip


def _llama(width: int, layers: int, inner: int) -> Network:
    return Network(
        "LlamaForCausalLM", "LlamaConfig",
        {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": width // 128,
         "num_key_value_heads": width // 128, "intermediate_size": inner},
    )  # fmt: skip


_LLAMA_7B, _LLAMA_13B = _llama(4096, 32, 11008), _llama(5120, 40, 13824)
_BEIT = {"use_relative_position_bias": True}
_CLIP_TEXT = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
_CLIP_VISION = {
    "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
    "patch_size": 14,
}  # fmt: skip

NETWORKS: dict[str, Network] = {
    "bert-base-uncased": _bert(768, 12, "BertForMaskedLM"),
    "bert-large": _bert(1024, 24, "BertForSequenceClassification", "BertForPreTraining"),
    "bert-base SQuAD": _bert(768, 12, "BertForQuestionAnswering"),
    "gaunernst/bert-small-uncased": _bert(512, 4),
    "BAAI/bge-base-en-v1.5": _bert(768, 12),
    "distilbert-base-uncased (MaskedLM)": Network("DistilBertForMaskedLM", "DistilBertConfig", mask=True),
    "gpt2-large": _gpt2(1280, 36, 20, 1024),
    "gpt2-large (CausalLM)": _gpt2(1280, 36, 20, 1024),
    # NeuSight's own configurations: GPT-3 XL has 24 heads of 128, and so a width of 3072.
    "gpt3-xl (CausalLM)": _gpt2(3072, 24, 24, 2048),
    "gpt3-2.7b (CausalLM)": _gpt2(2560, 32, 32, 2048),
    "facebook/opt-1.3b (CausalLM)": Network(
        "OPTForCausalLM", "OPTConfig",
        {"hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 32, "ffn_dim": 8192,
         "word_embed_proj_dim": 2048},
    ),
    "EleutherAI/pythia-410m-deduped": Network(
        "GPTNeoXForCausalLM", "GPTNeoXConfig",
        {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
         "vocab_size": 50304},
    ),
    "microsoft/biogpt": Network("BioGptForCausalLM", "BioGptConfig"),
    "meta-llama/Llama-2-7b-hf": _LLAMA_7B,
    "NousResearch/Llama-2-7b-hf": _LLAMA_7B,
    "lmsys/vicuna-7b-v1.5": _LLAMA_7B,
    "NousResearch/Llama-2-13b-hf": _LLAMA_13B,
    "mistralai/Mistral-7B-v0.1": Network("MistralForCausalLM", "MistralConfig"),
    "Qwen/Qwen1.5-0.5B-Chat": Network(
        "Qwen2ForCausalLM", "Qwen2Config",
        {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 16,
         "intermediate_size": 2816, "tie_word_embeddings": True},
    ),
    "google/vit-base-patch16-224": Network("ViTForImageClassification", "ViTConfig"),
    "Falconsai/nsfw_image_detection (ViT-base)": Network("ViTForImageClassification", "ViTConfig"),
    "facebook/vit-msn-base": Network("ViTMSNForImageClassification", "ViTMSNConfig"),
    "microsoft/beit-base-patch16-224": Network("BeitForImageClassification", "BeitConfig", _BEIT),
    "facebook/data2vec-vision-base": Network("Data2VecVisionForImageClassification", "Data2VecVisionConfig", _BEIT),
    "MCG-NJU/videomae-base-finetuned-kinetics": Network("VideoMAEForVideoClassification", "VideoMAEConfig"),
    "MIT/ast-finetuned-audioset-10-10-0.4593": Network("ASTForAudioClassification", "ASTConfig"),
    "openai/clip-vit-large-patch14 CLIPModel": Network(
        "CLIPModel", "CLIPConfig", {"text_config": _CLIP_TEXT, "vision_config": _CLIP_VISION, "projection_dim": 768}
    ),
    "openai/clip-vit-large-patch14 CLIPTextModel": Network("CLIPTextModel", "CLIPTextConfig", _CLIP_TEXT),
    "openai/clip-vit-large-patch14 CLIPVisionModel": Network("CLIPVisionModel", "CLIPVisionConfig", _CLIP_VISION),
    "openai/whisper-base": Network(
        "WhisperForConditionalGeneration", "WhisperConfig",
        {"d_model": 512, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 8,
         "decoder_attention_heads": 8, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048, "vocab_size": 51865},
    ),
}  # fmt: skip
_REASONS = {
    "switch-xl-4-experts": "the source replaces the experts' dispatch by its own",
    "google/vit-hybrid-base-bit-384": "transformers has dropped it",
    "google/owlv2-large-patch14-ensemble pipeline": "a pipeline with its pre- and post-processing",
    "facebook/timesformer-base-finetuned-k400": "the frames it attends to at once are not said",
}


def model(step: PublishedStep, name: str) -> tuple[nn.Module, Example]:
    """The network called ``name``, and the example inputs of ``step``.

    Raises:
        NotBuilt: transformers is not installed, or the network is not known.
    """
    for unknown, reason in _REASONS.items():
        if name.startswith(unknown):
            raise NotBuilt(f"{name}: {reason}")
    if name not in NETWORKS:
        raise NotBuilt(f"the sizes of transformers:{name} are not known")
    load_torchvision()
    try:
        transformers = importlib.import_module("transformers")
    except ImportError as error:
        raise NotBuilt(f"transformers is not installed ({error}): pip install transformers") from error
    network = NETWORKS[name]
    kind = network.training if step.mode == "train" and network.training else network.model
    config = getattr(transformers, network.config)(**network.sizes)
    if step.part == "forward":
        # A first forward pass filled no cache until transformers 4.36, and copies nothing into it since.
        config.use_cache = False
    attention = "eager" if step.attention == "eager" else "sdpa"
    built: nn.Module = getattr(transformers, kind)._from_config(config, attn_implementation=attention)
    if step.part == "decode":
        return _DecodeStep(built, transformers.cache_utils), _decoding(step, config)
    return built, _example(step, network)


@contextlib.contextmanager
def as_published() -> Iterator[None]:
    """Leave out what today's transformers asks about its inputs and the published releases did not.

    Today it reads whether texts are packed into one row, and whether a mask hides anything: the host waits for both,
    and tensors without values cannot answer. Neither holds for the published steps.
    """
    masking = importlib.import_module("transformers.masking_utils")
    answers = {"find_packed_sequence_indices": None, "fast_all": True}
    with contextlib.ExitStack() as stack:
        for name, answer in answers.items():
            if hasattr(masking, name):
                stack.enter_context(mock.patch.object(masking, name, return_value=answer))
        yield


def _example(step: PublishedStep, network: Network) -> Example:
    if network.model == "CLIPModel":
        return (torch.zeros(step.tokens, dtype=torch.int64), torch.empty(step.input)), {}
    if network.model == "WhisperForConditionalGeneration":
        return (torch.empty(step.input),), {"decoder_input_ids": torch.zeros(step.batch, 1, dtype=torch.int64)}
    if len(step.input) > 2:
        return (torch.empty(step.input),), {}
    tokens = (torch.zeros(step.input, dtype=torch.int64),)
    if network.mask and step.attention == "eager":
        return tokens, {"attention_mask": torch.empty(step.batch, 1, 1, step.input[1])}
    return tokens, {}


class _DecodeStep(nn.Module):
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


def _decoding(step: PublishedStep, config: Any) -> Example:
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = config.hidden_size // config.num_attention_heads
    layers: int = config.num_hidden_layers
    cached = [torch.empty(step.batch, heads, step.input[1], width) for _ in range(2 * layers)]
    return (torch.zeros(step.batch, 1, dtype=torch.int64), *cached), {}

"""``hf:NAME`` -> a model of transformers, built from its configuration alone, and the inputs that it takes.

No weights are downloaded or read. The configuration comes from a folder, else from the cache of Hugging Face, else, for
the names in configurations.json, from the defaults of transformers, else from the network.
"""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from placer import machine
from placer.errors import TargetError, first_line

PREFIX = "hf:"
#: The usual batch: rows of text or speech, tokens of a row, and images.
ROWS, TOKENS, IMAGES = 8, 128, 32
#: Samples of one second of speech.
SAMPLES = 16_000
#: Of the memory of this machine, what the weights of a model may take; a larger one is built without values.
SHARE = 0.5
#: Seconds in which a server has to answer once, before it is asked for a file: that question is repeated for minutes.
PATIENCE = 3.0
#: Organizations whose models had no prefix at first, and still answer to that name.
_FIRST = ("google-bert", "distilbert", "FacebookAI", "openai-community", "google-t5")


@cache
def published() -> Mapping[str, tuple[str, dict[str, Any]]]:
    """By name on huggingface.co: the architecture, and what differs from the defaults of its configuration."""
    text = Path(__file__).with_name("configurations.json").read_text(encoding="utf-8")
    return {name: (architecture, changes) for name, (architecture, changes) in json.loads(text).items()}


def build(name: str) -> tuple[nn.Module, tuple[str, ...]]:
    """The model of a name or a folder, as training would begin it, and notes. Raises TargetError in one line."""
    try:
        import transformers
    except ImportError as error:
        raise TargetError(f"hf:{name} needs transformers ({error}); run: pip install transformers") from error
    for package in ("transformers", "huggingface_hub"):  # without the advice that both log
        logging.getLogger(package).setLevel(logging.ERROR)
    config, notes = _configuration(name, transformers)
    architecture = (getattr(config, "architectures", None) or ["AutoModel"])[0]
    kind = getattr(transformers, architecture, None)
    make = getattr(kind, "_from_config", None) or getattr(kind, "from_config", None)
    if make is None:
        raise TargetError(
            f"hf:{name}: its architecture is {architecture}, which is no model of transformers "
            f"{transformers.__version__}: name a class like BertForMaskedLM in its config.json"
        )
    try:
        with torch.device("meta"):
            model: nn.Module = make(config)
        needs = sum(tensor.nbytes for tensor in model.parameters())
        if needs > SHARE * machine.memory("cpu")[1]:
            note = f"its weights, {needs / 1e9:,.0f} GB, have no room in this machine's memory, and no values"
            notes = (*notes, note)
        else:
            model = make(config)
    except Exception as error:  # the boundary to the configuration of anybody
        raise TargetError(f"hf:{name} cannot be built: {type(error).__name__}: {first_line(error)}") from error
    return model.train(), notes


def _configuration(name: str, transformers: Any) -> tuple[Any, tuple[str, ...]]:
    """The configuration of a name or a folder, and notes on where it is from."""
    folder = Path(name).expanduser()
    if name and folder.is_dir():
        if not (folder / "config.json").is_file():
            raise TargetError(f"hf:{name}: there is no config.json in that folder; config.save_pretrained writes it")
        return _read(name, transformers, str(folder)), ()
    if not name or name.startswith((".", "/", "~")) or name.endswith(".json") or "\\" in name:
        raise TargetError(f"hf:{name}: there is no folder {name!r}; name one with a config.json, or a model: hf:gpt2")
    try:
        return _read(name, transformers, name, local_files_only=True), ()
    except _NotFound:
        pass
    first_names = {full.partition("/")[2]: full for full in published() if full.startswith(_FIRST)}
    full_name = first_names.get(name, name)
    if full_name in published():
        architecture, changes = published()[full_name]
        config = getattr(transformers, architecture).config_class(**changes, architectures=[architecture])
        note = f"the configuration of {name} is from the defaults of transformers {transformers.__version__}"
        return config, (f"{note}: its own is not in the cache of Hugging Face",)
    return _read(name, transformers, name, local_files_only=not _answers(name)), ()


class _NotFound(TargetError):
    """There is no configuration where it was looked for."""


def _answers(name: str) -> bool:
    """Whether there is a network, and a server behind it that answers in time."""
    import huggingface_hub

    try:
        huggingface_hub.get_session().head(huggingface_hub.hf_hub_url(name, "config.json"), timeout=PATIENCE)
    except Exception:  # noqa: BLE001 - of either of two libraries, whatever lies between
        return False
    return True


def _read(name: str, transformers: Any, source: str, **options: Any) -> Any:
    try:
        return transformers.AutoConfig.from_pretrained(source, trust_remote_code=False, **options)
    except Exception as error:  # the boundary to a file of anybody
        if isinstance(error, OSError) and not Path(source).is_dir():
            raise _NotFound(
                f"hf:{name}: its config.json is not in the cache of Hugging Face, and huggingface.co has no such model "
                "or does not answer; check the name, or give a folder that holds the file: hf:PATH"
            ) from error
        why = first_line(error).rstrip(".")[:200]
        raise TargetError(f"hf:{name}: transformers does not read its config.json: {why}") from error


# --- what a step is given ---------------------------------------------------------------------------------------------

#: What to do with a model of transformers that does not say what it takes.
_INSTEAD = "write it into a file, with its inputs in a placer.Part, and name that: file.py:attribute"


def example(
    model: Any, train: bool, shape: tuple[int, ...] | None = None, dtype: torch.dtype | None = None
) -> dict[str, Any]:
    """Keyword arguments of one step: the main input of ``shape`` (None: the usual), and what the model asks for beside.

    ``dtype`` None is what the model takes. In training, labels are among them where the architecture computes its own
    loss. An encoder-decoder gets as many tokens for its decoder. Raises ValueError for a shape that does not fit, or
    where none is given for an input of which there is no usual one; TargetError for a model whose inputs are not known.
    """
    try:
        return _example(model, train, shape, dtype)
    except ValueError:
        raise
    except Exception as error:  # the boundary to the configuration of anybody
        why = f"{type(error).__name__}: {first_line(error)}"
        raise TargetError(f"the inputs of {type(model).__name__} cannot be made up ({why}); {_INSTEAD}") from error


def _example(model: Any, train: bool, shape: tuple[int, ...] | None, dtype: torch.dtype | None) -> dict[str, Any]:
    config, taken = model.config, inspect.signature(model.forward).parameters
    name = model.main_input_name if model.main_input_name in taken else next(iter(taken))
    usual = _usual_shape(name, config)
    if shape is None and usual is None:
        raise ValueError(f"--batch is missing: give the shape of {name}, the main input of {type(model).__name__}")
    if shape is not None and usual is not None and len(shape) != len(usual):
        typed, like = (",".join(map(str, sizes)) for sizes in (shape, usual))
        raise ValueError(f"--batch {typed} does not fit: {name} of {type(model).__name__} is like {like}")
    shape = shape or usual
    assert shape is not None
    inputs: dict[str, Any] = {}
    if name == "input_ids":
        if dtype is not None and (dtype.is_floating_point or dtype.is_complex):
            raise ValueError(f"--batch: {name} are integers, not {dtype}: leave the dtype out")
        inputs[name] = _tokens(config, shape, dtype or torch.int64)
        if "attention_mask" in taken:  # as tokenizers give it
            inputs["attention_mask"] = torch.ones(shape, dtype=torch.int64)
    else:
        inputs[name] = torch.empty(shape, dtype=dtype or model.dtype, device="meta")
    texts = (shape[0], shape[1] if name == "input_ids" else _length(config, "max_target_positions"))
    pictures = getattr(config, "vision_config", None)
    if pictures is not None and "pixel_values" in taken and name == "input_ids":  # pairs of a text and an image
        size = (shape[0], *(_usual_shape("pixel_values", pictures) or ())[1:])
        inputs["pixel_values"] = torch.empty(size, dtype=model.dtype, device="meta")
    decodes = config.is_encoder_decoder and "decoder_input_ids" in taken
    labels = _labels(model, taken, texts if decodes else shape) if train else {}
    if decodes and "labels" not in labels:
        inputs["decoder_input_ids"] = _tokens(config, texts, torch.int64)
    return {**inputs, **labels}


def _usual_shape(name: str, config: Any) -> tuple[int, ...] | None:
    """The usual batch of a main input, by its name; None where there is none."""
    if name == "input_ids":
        return ROWS, _length(config.get_text_config(), "max_position_embeddings")
    if name == "pixel_values":
        size = getattr(config, "image_size", None) or 224
        height, width = (size, size) if isinstance(size, int) else tuple(size)
        channels = getattr(config, "num_channels", None) or 3
        frames = getattr(config, "num_frames", None)
        return (IMAGES, channels, height, width) if frames is None else (ROWS, frames, channels, height, width)
    bins = getattr(config, "num_mel_bins", None)
    if name == "input_features" and bins and getattr(config, "max_source_positions", None):
        return ROWS, bins, 2 * config.max_source_positions  # Whisper's first convolutions halve the frames
    if name == "input_values":
        frames = getattr(config, "max_length", None)
        return (ROWS, frames, bins) if bins and frames else (ROWS, SAMPLES)
    return None


def _length(config: Any, limit: str) -> int:
    """``TOKENS``, or fewer where the model has no room for as many."""
    most = getattr(config, limit, None)
    return min(TOKENS, most) if isinstance(most, int) and most > 0 else TOKENS


def _tokens(config: Any, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Tokens in the vocabulary, the same each time, away from both its ends, where special ones are; else zeros."""
    size = getattr(config.get_text_config(), "vocab_size", None) or 1
    tokens = torch.randint(size // 4, max(size // 2, size // 4 + 1), shape, generator=torch.Generator().manual_seed(0))
    end = getattr(config, "eos_token_id", None)
    if config.is_encoder_decoder and isinstance(end, int) and shape[-1] > 1:
        tokens[..., -1] = end  # by which some find where a row ends
    return tokens.to(dtype)


#: Endings of the names of architectures, by what their labels are: one for each token, or one for each row.
_OF_TOKENS = (
    "ForMaskedLM", "ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "MTModel", "ForTokenClassification",
)  # fmt: skip
_OF_ROWS = (
    "ForSequenceClassification", "ForImageClassification", "ForAudioClassification", "ForVideoClassification",
)  # fmt: skip


def _labels(model: Any, taken: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, Tensor]:
    """What the loss of an architecture compares with; nothing where it has none of its own. Zeros are valid classes."""
    kind, config = type(model).__name__, model.config
    if kind.endswith("ForQuestionAnswering") and "start_positions" in taken:
        return {name: torch.zeros(shape[0], dtype=torch.int64) for name in ("start_positions", "end_positions")}
    if "labels" not in taken:
        return {}
    if kind.endswith(_OF_TOKENS):
        return {"labels": torch.zeros(shape[:2], dtype=torch.int64)}
    if kind.endswith(_OF_ROWS) and config.problem_type != "multi_label_classification":
        regression = config.problem_type == "regression" or config.num_labels == 1
        return {"labels": torch.zeros(shape[0], dtype=model.dtype if regression else torch.int64)}
    return {}

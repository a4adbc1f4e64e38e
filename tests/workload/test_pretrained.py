"""``hf:NAME``: models of transformers from their configuration alone, without the network."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from placer.errors import TargetError
from placer.tracing import trace
from placer.workload import Workload, example, load_target, make_workload, pretrained
from placer.workload.pretrained import published

transformers = pytest.importorskip("transformers")

SMALL = {
    "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 200,
}  # fmt: skip
PICTURE = {name: size for name, size in SMALL.items() if name != "vocab_size"}
#: Numbers of parameters that the pages of these models on huggingface.co give, tied weights once.
PUBLISHED = {
    "google-bert/bert-base-uncased": 109_514_298, "google-bert/bert-base-cased": 108_340_804,
    "google-bert/bert-large-uncased": 335_174_458, "distilbert/distilbert-base-uncased": 66_985_530,
    "distilbert/distilgpt2": 81_912_576, "FacebookAI/roberta-base": 124_697_433,
    "FacebookAI/roberta-large": 355_412_057, "openai-community/gpt2": 124_439_808,
    "openai-community/gpt2-medium": 354_823_168, "openai-community/gpt2-large": 774_030_080,
    "openai-community/gpt2-xl": 1_557_611_200, "google-t5/t5-small": 60_506_624, "google-t5/t5-base": 222_903_552,
    "google/vit-base-patch16-224": 86_567_656, "openai/whisper-tiny": 37_760_640,
}  # fmt: skip


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No network, and a cache without files."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "empty"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "configured"


def saved(folder: Path, config: str, architecture: str | None, **fields: Any) -> str:
    """A folder with the config.json of a small model, as a target."""
    made = getattr(transformers, config)(**fields, architectures=architecture and [architecture])
    made.save_pretrained(folder)
    return f"hf:{folder}"


def workload(target: str, train: bool, shape: tuple[int, ...] | None = None) -> Workload:
    found = load_target(target)
    step = make_workload(found.model, batch=example(found.model, train, shape), mode="train" if train else "infer")
    return replace(step, draw=found.draw)


@pytest.mark.parametrize("name", published())
def test_known_configurations_have_the_published_numbers_of_parameters(name: str) -> None:
    architecture, changes = published()[name]
    kind = getattr(transformers, architecture)
    with torch.device("meta"):
        model = kind(kind.config_class(**changes))
    assert sum(parameter.numel() for parameter in model.parameters()) == PUBLISHED[name]


@pytest.mark.parametrize("name", ["distilbert-base-uncased", "distilbert/distilbert-base-uncased"])
def test_a_known_name_needs_neither_network_nor_cache(name: str) -> None:
    found = load_target(f"hf:{name}")
    assert type(found.model).__name__ == "DistilBertForMaskedLM"
    assert found.model.training  # type: ignore[union-attr]
    note = f"the configuration of {name} is from the defaults of transformers {transformers.__version__}"
    assert [text.startswith(note) for text in found.notes] == [True]


#: Architecture, its configuration, and the inputs of a training step and of an inference beside the first one.
CASES = [
    ("BertForSequenceClassification", "BertConfig", SMALL, "8×128 int64", ["8×128 int64", "8 int64"], ["8×128 int64"]),
    ("BertForQuestionAnswering", "BertConfig", {**SMALL, "max_position_embeddings": 64}, "8×64 int64",
     ["8×64 int64", "8 int64", "8 int64"], ["8×64 int64"]),
    ("GPT2LMHeadModel", "GPT2Config", {"n_embd": 32, "n_layer": 1, "n_head": 2, "vocab_size": 200}, "8×128 int64",
     ["8×128 int64"] * 2, ["8×128 int64"]),
    ("RobertaForSequenceClassification", "RobertaConfig", {**SMALL, "max_position_embeddings": 140, "num_labels": 1},
     "8×128 int64", ["8×128 int64", "8 float32"], ["8×128 int64"]),
    ("T5ForConditionalGeneration", "T5Config",
     {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 1, "num_heads": 2, "vocab_size": 200,
      "decoder_start_token_id": 0}, "8×128 int64", ["8×128 int64"] * 2, ["8×128 int64"] * 2),
    ("ViTForImageClassification", "ViTConfig", {**PICTURE, "image_size": 64, "num_channels": 1},
     "32×1×64×64 float32", ["32 int64"], []),
    ("WhisperForConditionalGeneration", "WhisperConfig",
     {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
      "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_source_positions": 50,
      "max_target_positions": 20}, "8×80×100 float32", ["8×20 int64"], ["8×20 int64"]),
    ("CLIPModel", "CLIPConfig",
     {"text_config": {**SMALL, "eos_token_id": 2}, "vision_config": {**PICTURE, "image_size": 64}}, "8×77 int64",
     ["8×77 int64", "8×3×64×64 float32"], ["8×77 int64", "8×3×64×64 float32"]),
    ("ASTForAudioClassification", "ASTConfig", {**PICTURE, "max_length": 64}, "8×64×128 float32", ["8 int64"], []),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("architecture", "config", "fields", "main", "train", "infer"), CASES)
def test_the_usual_inputs_of_an_architecture(
    folder: Path, architecture: str, config: str, fields: dict[str, Any], main: str, train: list[str], infer: list[str]
) -> None:
    target = saved(folder, config, architecture, **fields)
    for trains, expected in ((True, train), (False, infer)):
        step = workload(target, trains)
        assert type(step.model).__name__ == architecture
        assert step.describe_inputs() == [main, *expected]
        traced = trace(step)
        assert (traced.mode, traced.real) == ("train" if trains else "infer", False)
        assert {call.layer for call in traced.calls} <= {name for name, _ in step.model.named_modules()}
        assert traced.parameter_bytes == sum(p.numel() * 4 for p in step.model.parameters())
        labelled = {"labels", "start_positions"} & set(step.kwargs)
        assert labelled == set() or trains
        # Its own loss is the only one to compute one of labels.
        assert bool(labelled) == any(call.op.endswith(("nll_loss_forward", "mse_loss")) for call in traced.calls)


def of_forward(forward: Callable[..., Any], **fields: Any) -> Any:
    """A model of transformers with that forward, whose configuration has these fields beyond those of all."""

    class Strange(transformers.PreTrainedModel):  # type: ignore[misc,name-defined]
        config_class = transformers.PretrainedConfig

    Strange.forward = forward
    model = Strange(transformers.PretrainedConfig(**fields))
    model.weight = torch.nn.Parameter(torch.ones(2))
    return model


@pytest.mark.filterwarnings("ignore")
def test_a_configuration_without_the_usual_fields_is_an_example_or_one_line() -> None:
    without_a_vocabulary = of_forward(lambda self, input_ids: input_ids)
    assert not example(without_a_vocabulary, False)["input_ids"].any()
    of_pictures = of_forward(lambda self, pixel_values: pixel_values, image_size=48)
    assert example(of_pictures, False)["pixel_values"].shape == (32, 3, 48, 48)
    of_films = of_forward(lambda self, pixel_values: pixel_values, image_size=48, num_frames=16)
    assert example(of_films, False)["pixel_values"].shape == (8, 16, 3, 48, 48)
    of_speech = of_forward(lambda self, input_values: input_values, num_mel_bins=80)
    assert example(of_speech, False)["input_values"].shape == (8, 16_000)
    for model, error, says in (
        (of_forward(lambda self, pixel_values: 0, image_size=4.5), TargetError, "inputs of Strange cannot be made up"),
        (of_forward(lambda self, hidden_states: 0), ValueError, "--batch is missing: give the shape of hidden_states"),
    ):
        with pytest.raises(error, match=says):
            example(model, False)


def test_batch_is_the_shape_of_the_main_input(folder: Path) -> None:
    target = saved(folder, "BertConfig", "BertForMaskedLM", **SMALL)
    assert workload(target, True, (2, 16)).describe_inputs() == ["2×16 int64"] * 3
    model = load_target(target).model
    with pytest.raises(ValueError, match="--batch 4 does not fit: input_ids of BertForMaskedLM is like 8,128"):
        example(model, True, (4,))
    with pytest.raises(ValueError, match="input_ids are integers"):
        example(model, True, (2, 16), torch.float32)


def test_a_model_larger_than_the_memory_has_no_values(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrained, "SHARE", 0.0)
    target = saved(folder, "BertConfig", "BertForMaskedLM", **SMALL)
    found = load_target(target)
    assert any("have no room in this machine's memory" in note for note in found.notes)
    assert {parameter.device.type for parameter in found.model.parameters()} == {"meta"}  # type: ignore[union-attr]
    large = trace(workload(target, False))
    monkeypatch.undo()
    assert [call.op for call in large.calls] == [call.op for call in trace(workload(target, False)).calls]


def test_a_server_that_never_answers_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hugging Face's own questions are repeated for minutes, and would outlast the limit of a test."""
    monkeypatch.setattr(pretrained, "PATIENCE", 0.2)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
        template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        with pytest.raises(TargetError, match="has no such model or does not answer"):
            load_target("hf:no/such-model")
        server.settimeout(0.0)
        connection, _ = server.accept()
        connection.close()
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no/such-model", "its config.json is not in the cache of Hugging Face, and huggingface.co has no such model"),
        ("a/b/c", "hf:a/b/c"),
        ("", "there is no folder"),
        ("./missing", "there is no folder './missing'; name one with a config.json, or a model: hf:gpt2"),
        ("/missing/config.json", "there is no folder '/missing/config.json'"),
        ("{}/empty", "there is no config.json in that folder; config.save_pretrained writes it"),
        ("{}/damaged", "damaged: transformers does not read its config.json: "),
        ("{}/unknown", "transformers does not read its config.json"),
        ("{}/newer", "its architecture is NoSuchModel, which is no model of transformers"),
        ("{}/wrong", "cannot be built: "),
        ("{}/BertTokenizer", "its architecture is BertTokenizer, which is no model of transformers"),
        ("{}/pipeline", "its architecture is pipeline, which is no model"),
    ],
)
def test_errors_are_one_line(tmp_path: Path, name: str, says: str) -> None:
    files = {
        "damaged": "{", "unknown": '{"model_type": "no_such_type"}',
        "newer": '{"model_type": "bert", "architectures": ["NoSuchModel"]}',
        "wrong": '{"model_type": "bert", "architectures": ["BertModel"], "hidden_size": 7}',
    }  # fmt: skip
    for architecture in ("BertTokenizer", "pipeline"):
        files[architecture] = json.dumps({"model_type": "bert", "architectures": [architecture]})
    (tmp_path / "empty").mkdir()
    for folder, text in files.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "config.json").write_text(text)
    with pytest.raises(TargetError) as caught:
        load_target(f"hf:{name.format(tmp_path)}")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)

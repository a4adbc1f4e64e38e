"""``generate`` of transformers as a job: its parts run what the library runs, and the model stays as it is."""

from __future__ import annotations

import sys
from collections import Counter
from functools import partial
from typing import Any

import pytest
import torch
from collector import functions_entered
from pictures import picture, same
from torch.utils._python_dispatch import TorchDispatchMode

pytest.importorskip("transformers", reason="transformers is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

import transformers  # noqa: E402

import placer  # noqa: E402
from placer.integrations.generation import CACHE, generation  # noqa: E402
from placer.nest import tensors  # noqa: E402
from placer.tracing import Trace, trace  # noqa: E402

PROMPT = 12
#: Ops that a trace and the dispatcher call by one name.
COMPARED = ("addmm", "mm", "cat", "native_layer_norm", "argmax", "isin", "any", "embedding", "gelu", "tanh", "pow")


def gpt2() -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=2, n_embd=32, n_head=2, vocab_size=99, n_positions=64, bos_token_id=0, eos_token_id=98
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        model.transformer.wte.weight[98] = 0.0  # so that no text ends early
    return model


def llama() -> Any:
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = transformers.LlamaConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=2, vocab_size=99, **heads)
    return transformers.LlamaForCausalLM(config).eval()


def t5() -> Any:
    config = transformers.T5Config(
        d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, vocab_size=99, decoder_start_token_id=0
    )
    return transformers.T5ForConditionalGeneration(config).eval()


def generated(model: Any, new_tokens: int, batch: int = 2) -> torch.Tensor:
    ids = torch.ones(batch, PROMPT, dtype=torch.int64)
    return model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new_tokens)


class Ops(TorchDispatchMode):
    """Counts the ops that really run."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def ops(model: Any, new_tokens: int) -> Counter[str]:
    with Ops() as counter:
        generated(model, new_tokens)
    return counter.seen


def traced(job: placer.Job, name: str) -> Trace:
    return trace(job.part(name).workload)


def by_name(found: Trace) -> Counter[str]:
    return Counter(call.op.removeprefix("aten::").partition(".")[0] for call in found.calls)


def test_the_parts_are_the_prompt_and_steps_of_one_token() -> None:
    job = generation(gpt2(), PROMPT, 9, batch=2, repeats=5)
    names = [part.name for part in job.parts]
    assert names == ["prefill", "decode, cache of 12", "decode, cache of 15", "decode, cache of 19"]
    assert [part.count for part in job.parts] == [1, 2, 4, 2]
    assert job.repeats == 5
    assert [part.name for part in generation(gpt2(), PROMPT, 1).parts] == ["prefill"]
    long = generation(gpt2(), PROMPT, 40).parts[1:]
    assert sum(part.count for part in long) == 39
    assert long[-1].name == "decode, cache of 50"  # the last step has the most memory


def mixtral() -> Any:
    """A mixture of experts: which of them run follows from values."""
    config = transformers.MixtralConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
        vocab_size=99, num_local_experts=4,
    )  # fmt: skip
    return transformers.MixtralForCausalLM(config).eval()


def quantized() -> Any:
    return torch.ao.quantization.quantize_dynamic(llama(), {torch.nn.Linear}, dtype=torch.qint8)


@pytest.mark.filterwarnings("ignore::UserWarning")  # of torch, about quantization
@pytest.mark.parametrize("build", [mixtral, quantized])
def test_a_model_whose_values_a_step_needs_is_priced(build: Any) -> None:
    model = build()
    kind, attributes = type(model), set(vars(model))
    job = generation(model, PROMPT, 4)
    assert placer.explain(job).devices["cpu"].seconds > 0.0
    assert (type(model), set(vars(model))) == (kind, attributes)


@pytest.mark.parametrize("build", [gpt2, llama, t5])
def test_a_decode_step_runs_the_ops_of_one_turn_of_the_library(build: Any) -> None:
    model = build()
    one_more = ops(model, 4)
    one_more.subtract(ops(model, 3))
    job = generation(model, PROMPT, 4, batch=2)
    found, prefill = traced(job, job.parts[-1].name), by_name(traced(job, "prefill"))
    ran = by_name(found)
    assert {name: ran[name] for name in COMPARED} == {name: one_more[name] for name in COMPARED}
    assert found.syncs == one_more["_local_scalar_dense"] >= 1
    real = ops(model, 1)
    assert {name: prefill[name] for name in COMPARED} == {name: real[name] for name in COMPARED}


@pytest.mark.skipif(sys.getprofile() is not None, reason="a profiler already listens")
def test_a_decode_step_enters_the_functions_of_one_turn() -> None:
    model = gpt2()
    generated(model, 2)
    seven, six = (functions_entered(partial(generated, model, tokens)) for tokens in (7, 6))
    found = traced(generation(model, PROMPT, 4, batch=2), "decode, cache of 13")
    assert found.python_calls == pytest.approx(seven - six, rel=0.15)


def test_a_decoder_starts_with_one_token_and_reads_the_encoders_keys() -> None:
    job = generation(t5(), PROMPT, 6, batch=2)
    assert [part.name for part in job.parts[1:]] == [f"decode, cache of {n}" for n in (1, 3, 5)]
    caches = [part.workload.args[1][CACHE] for part in job.parts[1:]]
    lengths = [{tensor.shape[2] for tensor in tensors(cache)} for cache in caches]
    assert lengths == [{1, PROMPT}, {3, PROMPT}, {5, PROMPT}]
    assert placer.explain(job, devices="cpu").devices["cpu"].step_seconds > 0


def test_the_model_and_random_numbers_stay_as_they_are() -> None:
    model = gpt2().train()
    before = picture(model)
    placer.explain(generation(model, PROMPT, 6, do_sample=True), devices="cpu")
    assert same(before, picture(model))


@pytest.mark.parametrize(
    ("given", "options", "error", "said"),
    [
        ((0, 4), {}, ValueError, "prompt_length must be a whole number of at least 1, not 0"),
        ((4, 2.5), {}, ValueError, "new_tokens must be a whole number"),
        ((4, 4), {"num_beams": 3}, ValueError, "leave out what asks for it"),
        ((4, 4), {"num_return_sequences": 2, "do_sample": True}, ValueError, "num_return_sequences=2 is not priced"),
        ((4, 4), {"cache_implementation": "static"}, ValueError, "'dynamic'"),
        ((4, 4), {"max_new_tokens": 3}, TypeError, "leave it out"),
        ((4, 4), {"attention_mask": None}, TypeError, "not a setting of generate: attention_mask"),
    ],
)
def test_a_wrong_argument_is_named(given: Any, options: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        generation(gpt2(), *given, **options)

"""``generate`` of transformers: a GPT of DistilGPT2's size writes 32 tokens after a prompt of 64."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from placer.integrations.generation import generation
from placer.workload import Job

PROMPT, NEW = 64, 32


def build() -> tuple[Job, Callable[[], float]]:
    """The job, and what runs it once and returns the seconds."""
    model = GPT2LMHeadModel(GPT2Config(n_layer=6)).eval()
    # No token ends a text of these random weights.
    model.generation_config.eos_token_id = None
    ids = torch.zeros(1, PROMPT, dtype=torch.int64)

    def run() -> float:
        began = time.perf_counter()
        model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW)
        return time.perf_counter() - began

    return generation(model, PROMPT, NEW), run

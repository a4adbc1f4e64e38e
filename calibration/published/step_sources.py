"""What the published step times of each source include, and where they come from.

Every fact here is read from the source's own scripts; ``STEPS.md`` beside the data says how each was found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class StepSource:
    """One publication of whole-step times.

    Attributes:
        repository: owner and name on GitHub.
        commit: abbreviated commit of the files; "" where it is not known.
        licence: SPDX name, or what is known of it.
        copies: where the batch is when the timed step begins: a ``"host"`` batch is copied inside the step, from
            pageable memory.
        zero_grad: whether clearing the gradients is inside the timed training step.
        keeps_gradients: gradients exist before the backward pass, which then adds to them instead of storing new ones.
            None: as ``zero_grad`` of the torch version leaves them (since torch 2.0 it deletes them).
        benchmark: ``torch.backends.cudnn.benchmark``; None where not known.
        synchronised: whether the host waits for the device in every step. Otherwise steps overlap, and a step's time is
            a share of a longer run.
        statistic: what the published number is.
        loss: of a training step: cross-entropy against given classes, or the sum of the outputs.
        loss_timed: whether the loss itself is inside. Its gradient always is.
        input_gradient: the input asks for its gradient, which the backward pass then computes as well.
    """

    repository: str
    commit: str
    licence: str
    copies: Literal["host", "device"]
    zero_grad: bool
    keeps_gradients: bool | None
    benchmark: bool | None
    synchronised: bool
    statistic: str
    loss: Literal["cross-entropy", "sum"] = "cross-entropy"
    loss_timed: bool = True
    input_gradient: bool = False


SOURCES: dict[str, StepSource] = {
    "timm": StepSource(
        "huggingface/pytorch-image-models", "aa4b5850", "Apache-2.0", "device", False, None, True, True,
        "mean of 40 steps",
    ),
    "ryujaehun:lamikr": StepSource(
        "lamikr/pytorch-gpu-benchmark", "43d16131", "MIT", "host", True, None, True, True, "median of 50 steps"
    ),
    "ryujaehun:aisensiy": StepSource(
        "aisensiy/pytorch-gpu-benchmark", "bbff357c", "MIT", "host", True, None, True, True, "median of 50 steps"
    ),
    "lambdal": StepSource(
        "lambdal/deeplearning-benchmark", "aa5addb6", "none seen", "host", True, None, None, False, "mean of a run"
    ),
    "nvidia-dle": StepSource(
        "NVIDIA/DeepLearningExamples", "729963dd", "BSD-3-Clause or Apache-2.0, by folder", "host", True, None, True,
        True, "mean of a run, its slow first steps included",
    ),
    "optimum-benchmark": StepSource(
        "huggingface/optimum-benchmark", "b263af46", "Apache-2.0", "device", False, None, False, True, "mean of 10 s"
    ),
    "transformers-docs": StepSource(
        "huggingface/transformers", "", "Apache-2.0", "device", True, None, False, True, "mean, most rounded to 1 ms",
        loss="sum",
    ),
    "neusight": StepSource(
        "trsharm25/NeuSight", "db1fdc96", "MIT", "device", False, True, True, True, "mean of the 5 fastest of 25",
        loss_timed=False,
    ),
    "jcjohnson/cnn-benchmarks": StepSource(
        "jcjohnson/cnn-benchmarks", "0367b1f5", "MIT", "device", False, None, True, True, "mean of 10 steps"
    ),
    "u39kun": StepSource(
        "u39kun/deep-learning-benchmark", "02ef7436", "none seen", "device", True, True, True, True,
        "mean of 20 steps", loss="sum", input_gradient=True,
    ),
    "profiler-trace": StepSource(
        "facebookresearch/HolisticTraceAnalysis, pytorch/kineto, AMD-AGI/TraceLens, sarchlab/triosim", "",
        "MIT or BSD", "device", False, None, None, False, "one step under the profiler",
    ),
    "lcy-seso/Carrot": StepSource(
        "lcy-seso/Carrot", "0824b06a", "none seen", "device", True, True, False, False, "mean of 50 steps"
    ),
    "stefbraun/rnn_benchmarks": StepSource(
        "stefbraun/rnn_benchmarks", "03dded9d", "none seen", "host", True, True, None, True, "median of 500 steps"
    ),
    "sandeepkumar-skb/pytorch_experiments": StepSource(
        "sandeepkumar-skb/pytorch_experiments", "", "none seen", "device", True, None, None, True, "not said"
    ),
    "owensgroup": StepSource(
        "owensgroup/ml_perf_model", "5b2522a0", "BSD-3-Clause", "device", True, None, None, False,
        "as a notebook printed it",
    ),
}  # fmt: skip

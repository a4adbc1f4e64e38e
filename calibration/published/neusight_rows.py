"""NeuSight's times of whole language models, as rows like those of the other sources.

``e2e_neusight.csv`` holds forward and backward apart. ``steps.csv.gz`` repeats most of it, rounded.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

Row = dict[str, str]

_NETWORKS = {
    "bert_large": "transformers:bert-large",
    "gpt2_large": "transformers:gpt2-large (CausalLM)",
    "gpt3_xl": "transformers:gpt3-xl (CausalLM)",
    "gpt3_27": "transformers:gpt3-2.7b (CausalLM)",
    "opt_13": "transformers:facebook/opt-1.3b (CausalLM)",
    "switchxl4": "transformers:switch-xl-4-experts (Seq2SeqLM, custom dispatch)",
}
_GPUS = {
    "AMD Instinct MI100": "MI100",
    "AMD Instinct MI210": "MI210",
    "AMD Instinct MI250": "MI250",
    "NVIDIA A100-PCIE-40GB": "A100 PCIe 40GB",
    "NVIDIA A100 80GB PCIe": "A100 PCIe 80GB",
    "NVIDIA A100-SXM4-40GB": "A100 SXM 40GB",
    "Tesla P4": "P4",
    "Tesla P100-PCIE-16GB": "P100 PCIe 16GB",
    "Tesla T4": "T4",
    "Tesla V100-PCIE-32GB": "V100 PCIe 32GB",
}
#: ``steps.csv.gz``, of which a share of the networks is kept apart, has no row of OPT.
_APART = "; network kept apart"


def neusight_rows(path: Path) -> Iterator[Row]:
    """The rows of ``e2e_neusight.csv``. Variant ``fusion`` is torch.compile; dp4, tp4 and pp4 run on four GPUs."""
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            batch, sequence, variant = row["batch"], row["seq"], row["variant"]
            amd = "AMD" in row["gpu"]
            yield {
                "source": "neusight",
                "gpu": row["gpu"],
                "gpu_norm": _GPUS.get(row["gpu"], row["gpu"]),
                "gpu_count": "4" if "p4" in variant else "1",
                "host_cpu": "unknown",
                "torch_version": "2.4.1 (ROCm)" if amd else "2.1.0",
                "cuda": "",
                "network": _NETWORKS.get(row["model"], row["model"]),
                "batch": batch,
                "input": f"{batch}x{sequence} tokens",
                "dtype": "fp32 (tf32 matmul default off)",
                "memory_format": "",
                "mode": "train" if row["mode"] == "train" else "infer",
                "optimizer": "none (fwd + bwd only)" if row["mode"] == "train" else "none",
                "compiled": "yes" if variant == "fusion" else "no",
                "step_ms": row["e2e_latency"],
                "forward_ms": row["fw_latency"],
                "backward_ms": row["bwall_latency"],
                "notes": f"gc and empty_cache before every step{_APART if row['model'] == 'opt_13' else ''}",
            }

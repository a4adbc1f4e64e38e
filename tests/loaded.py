"""Run as a program: does what a user does, lightest first, and prints the modules that were new after each step.

Argument: a file with a profile.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def refuse(*_: Any, **__: Any) -> bool:
    raise AssertionError("a device was asked what it can do")


def main(profile: str) -> None:
    found: dict[str, list[str]] = {}
    known = set(sys.modules)

    def done(step: str) -> None:
        found[step] = sorted(set(sys.modules) - known)
        known.update(sys.modules)

    import placer

    done("import")
    import placer.explanation

    done("explanation")
    for name in placer.__all__:
        getattr(placer, name)
    done("names")

    import torch
    from torch import nn

    placement = placer.choose(nn.Linear(8, 8), (4, 8), devices=["cpu"], profile=profile)
    assert placement.decision.device == "cpu"
    assert placement.predictions["cpu"].step_seconds > 0
    assert not torch.cuda.is_initialized()
    done("choose")

    from placer.tracing import trace
    from placer.workload import make_workload
    from placer.workload.target import Undrawn

    with Undrawn() as undrawn:
        nn.Linear(512, 512)
    assert undrawn._left
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.GroupNorm(2, 8),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.LayerNorm(8),
        nn.Linear(8, 10),
        nn.LogSoftmax(1),
    )
    target = torch.zeros(64, dtype=torch.long)
    trace(make_workload(net, (64, 3, 64, 64), mode="infer"))
    trace(make_workload(net, (64, 3, 64, 64), mode="train", loss=lambda out: nn.functional.nll_loss(out, target)))
    done("trace")

    # In an empty PLACER_HOME: what a similar CPU's profile says, after half a second of probing.
    estimate = placer.choose(nn.Linear(8, 8), (4, 8), devices=["cpu"])
    assert estimate.provenance == "published"
    done("estimate")

    class Autocast(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                return super().forward(x)

    # Asking whether CUDA knows bfloat16 would create a context.
    torch.cuda.is_available = torch.cuda.is_bf16_supported = refuse
    torch.cuda.amp.common.amp_definitely_not_available = refuse
    traced = trace(make_workload(Autocast(3, 3), (2, 3), mode="infer"))
    assert traced.on("cuda").outputs[0].dtype == "bfloat16"
    done("autocast")

    from placer.calibration.lab.suite import entries

    assert [entry.missing() for entry in entries("full")]
    done("suite")
    print("LOADED" + json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])

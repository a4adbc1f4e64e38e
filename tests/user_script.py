"""A user's script as mypy reads it in ``make types``: what the calls return, and what it refuses. It also runs."""

from __future__ import annotations

import torch
from torch import nn
from typing_extensions import assert_type

import placer

model = nn.Linear(84, 1)
optimizer = torch.optim.Adam(model.parameters())
x, y = torch.randn(32, 84), torch.randn(32, 1)

placement = placer.choose(model, (32, 84), loss=nn.MSELoss(), target=(32, 1), optimizer=optimizer, mode="train")
assert_type(placement, placer.Placement)
assert_type(placement.device, torch.device)
assert_type(placement.confidence, "float | None")
seconds = placement.predictions[placement.device].step_seconds
placer.choose(model, [(32, 84)], data="pinned", outputs="device", steps=10, devices=torch.device("cpu"), move=False)
placer.choose(model, x, loss=nn.functional.mse_loss, target=y, options=placer.Options(threads="tune"), move=False)
placer.choose(model, batch_shape=(32, 84), move=False)
assert_type(placer.explain(model, batch_shape=(32, 84)), placer.Explanation)
assert_type(placer.explain(model, {"input": x}, mode="infer", autocast=torch.bfloat16), placer.Explanation)

job = placer.Job([placer.Part("training", model, (32, 84), mode="train", loss=nn.MSELoss(), target=y)])
whole = placer.choose(job, devices=["cpu"], move=False)
assert_type(whole, placer.JobPlacement)
assert_type(whole.parts["training"], placer.Placement)

if not placement.predictions:  # never: what follows is refused by mypy, and by placer when it runs
    placer.choose(model, x, mode="training")  # type: ignore[call-overload]
    placer.choose(model, x, data="gpu")  # type: ignore[call-overload]
    placer.choose(job, x)  # type: ignore[call-overload]
    placer.choose(job, batch_shape=(32, 84))  # type: ignore[call-overload]
    placer.choose(job, mode="train")  # type: ignore[call-overload]
    placer.explain(model, x, mode="training")  # type: ignore[arg-type]
    placer.Options(threads="all")  # type: ignore[arg-type]
    placer.Options(objective="beauty")  # type: ignore[arg-type]

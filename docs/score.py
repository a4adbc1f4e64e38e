"""A script that knows nothing of placer, and scores rows: what `placer run` says of it is shown in README.md."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(84, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 3)).eval()
with torch.inference_mode():
    scores = [model(torch.randn(64, 84)).argmax(1) for _ in range(20)]

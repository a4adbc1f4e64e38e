"""PyTorch, "Learning PyTorch with Examples": a third-order polynomial fitted to a sine, all data in one batch."""

import math

import torch

import placer  # + placer

torch.manual_seed(0)
x = torch.linspace(-math.pi, math.pi, 2000)
y = torch.sin(x)
xx = x.unsqueeze(-1).pow(torch.tensor([1, 2, 3]))

model = torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Flatten(0, 1))
loss_fn = torch.nn.MSELoss(reduction="sum")
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
placement = placer.choose(model, (2000, 3), optimizer=optimizer, data="device", steps=50)  # + placer
xx, y = placement.to((xx, y))  # + placer

losses = []
for _t in range(50):
    loss = loss_fn(model(xx), y)
    losses.append(loss.item())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

"""accelerate, "Quicktour": a training loop in which only prepare and backward are accelerate's."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import placer  # + placer

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters())
data = TensorDataset(torch.randn(64, 10), torch.randint(0, 2, (64,)))
training_dataloader = DataLoader(data, batch_size=16, shuffle=True)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)

placement = placer.choose(model, (16, 10), optimizer=optimizer, move=False)  # + placer
accelerator = Accelerator(cpu=placement.device.type == "cpu")  # without placer: accelerator = Accelerator(cpu=True)
model, optimizer, training_dataloader, scheduler = accelerator.prepare(model, optimizer, training_dataloader, scheduler)

losses = []
for inputs, targets in training_dataloader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), targets)
    accelerator.backward(loss)
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())

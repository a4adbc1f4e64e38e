"""PyTorch, "Quickstart": a classifier of 28 x 28 images; here they are drawn at random."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import placer  # + placer

torch.manual_seed(0)
training_data = TensorDataset(torch.rand(256, 1, 28, 28), torch.randint(0, 10, (256,)))
train_dataloader = DataLoader(training_data, batch_size=64, shuffle=True)


class NeuralNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.flatten = nn.Flatten()
        self.linear_relu_stack = nn.Sequential(
            nn.Linear(28 * 28, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)
        )

    def forward(self, x):
        return self.linear_relu_stack(self.flatten(x))


model = NeuralNetwork()
loss_fn = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-1)
placement = placer.choose(model, (64, 1, 28, 28), optimizer=optimizer)  # + placer

losses = []
for _epoch in range(2):
    model.train()
    for X, y in placement.batches(train_dataloader):  # without placer: for X, y in train_dataloader:
        loss = loss_fn(model(X), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())

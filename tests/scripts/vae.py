"""pytorch/examples, vae: a variational autoencoder, whose forward pass draws random numbers."""

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader

import placer  # + placer


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 64)
        self.fc21 = nn.Linear(64, 8)
        self.fc22 = nn.Linear(64, 8)
        self.fc3 = nn.Linear(8, 64)
        self.fc4 = nn.Linear(64, 784)

    def forward(self, x):
        h1 = F.relu(self.fc1(x.view(-1, 784)))
        mu, logvar = self.fc21(h1), self.fc22(h1)
        std = torch.exp(0.5 * logvar)
        z = mu + torch.randn_like(std) * std
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    bce = F.binary_cross_entropy(recon_x, x.view(-1, 784), reduction="sum")
    return bce - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())


torch.manual_seed(1)
train_loader = DataLoader(torch.rand(96, 1, 28, 28), batch_size=32, shuffle=True)
model = VAE()
optimizer = optim.Adam(model.parameters(), lr=1e-3)
placement = placer.choose(model, (32, 1, 28, 28), optimizer=optimizer)  # + placer

losses = []
model.train()
for data in placement.batches(train_loader):  # without placer: for data in train_loader:
    optimizer.zero_grad()
    recon_batch, mu, logvar = model(data)
    loss = loss_function(recon_batch, data, mu, logvar)
    loss.backward()
    losses.append(loss.item())
    optimizer.step()

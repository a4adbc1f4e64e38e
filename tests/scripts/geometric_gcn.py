"""torch_geometric, "Introduction by Example": a graph convolution on one graph; here a random one."""

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import placer  # + placer

torch.manual_seed(12345)
data = Data(x=torch.randn(60, 16), edge_index=torch.randint(0, 60, (2, 200)), y=torch.randint(0, 4, (60,)))


class GCN(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = GCNConv(16, 16)
        self.conv2 = GCNConv(16, 4)

    def forward(self, x, edge_index):
        x = F.dropout(F.relu(self.conv1(x, edge_index)), training=self.training)
        return F.log_softmax(self.conv2(x, edge_index), dim=1)


model = GCN()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
placement = placer.choose(model, batch=(data.x, data.edge_index), optimizer=optimizer, data="device")  # + placer
data = placement.to(data)  # + placer

losses = []
model.train()
for _epoch in range(5):
    optimizer.zero_grad()
    loss = F.nll_loss(model(data.x, data.edge_index), data.y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

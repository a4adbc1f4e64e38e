"""torchdiffeq, ode_demo: a network learns the derivative of a spiral."""

import torch
from torch import nn, optim
from torchdiffeq import odeint

import placer  # + placer

torch.manual_seed(0)
true_A = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
true_y0 = torch.tensor([[2.0, 0.0]])
t = torch.linspace(0.0, 2.0, 20)
with torch.no_grad():
    true_y = odeint(lambda _, y: torch.mm(y**3, true_A), true_y0, t, method="dopri5")


class ODEFunc(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 50), nn.Tanh(), nn.Linear(50, 2))
        for m in self.net.modules():
            if isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, mean=0, std=0.1)
                nn.init.constant_(m.bias, val=0)

    def forward(self, t, y):
        return self.net(y**3)


func = ODEFunc()
optimizer = optim.RMSprop(func.parameters(), lr=1e-3)


def step(y0, t):  # + placer
    odeint(func, y0, t, method="rk4").mean().backward()  # + placer
    optimizer.step()  # + placer


placement = placer.choose(step, (true_y0, t), modules=func, optimizer=optimizer)  # + placer
true_y0, true_y, t = placement.to((true_y0, true_y, t))  # + placer

losses = []
for _itr in range(3):
    optimizer.zero_grad()
    loss = torch.mean(torch.abs(odeint(func, true_y0, t, method="rk4") - true_y))
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

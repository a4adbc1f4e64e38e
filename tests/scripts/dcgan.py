"""PyTorch, "DCGAN Tutorial": two networks, two optimizers; the discriminator's step is the larger half."""

import torch
from torch import nn, optim

import placer  # + placer

torch.manual_seed(999)
nz, ngf, ndf = 8, 8, 8
netG = nn.Sequential(
    nn.ConvTranspose2d(nz, ngf, 4, 1, 0, bias=False),
    nn.BatchNorm2d(ngf),
    nn.ReLU(True),
    nn.ConvTranspose2d(ngf, 3, 4, 2, 1, bias=False),
    nn.Tanh(),
)
netD = nn.Sequential(
    nn.Conv2d(3, ndf, 4, 2, 1, bias=False),
    nn.LeakyReLU(0.2, inplace=True),
    nn.Conv2d(ndf, 1, 4, 1, 0, bias=False),
    nn.Sigmoid(),
    nn.Flatten(0),
)
criterion = nn.BCELoss()
optimizerD = optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
losses = []


def step(real):
    ones, zeros = real.new_ones(len(real)), real.new_zeros(len(real))
    netD.zero_grad()
    err_real = criterion(netD(real), ones)
    err_real.backward()
    fake = netG(torch.randn(len(real), nz, 1, 1, device=real.device))
    err_fake = criterion(netD(fake.detach()), zeros)
    err_fake.backward()
    optimizerD.step()
    netG.zero_grad()
    err_g = criterion(netD(fake), ones)
    err_g.backward()
    optimizerG.step()
    return (err_real + err_fake).item(), err_g.item()


placement = placer.choose(step, (16, 3, 8, 8), modules=[netG, netD])  # + placer
images = torch.rand(5, 16, 3, 8, 8)
for batch in placement.batches(images):  # without placer: for batch in images:
    losses.append(step(batch))  # noqa: PERF401 - the step is the point, not the list

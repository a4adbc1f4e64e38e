"""After pytorch/examples, imagenet/main.py: a small residual network on JPEG images that are augmented as they come."""

import argparse
import io
import random

import numpy as np
import torch
from PIL import Image, ImageEnhance
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    """JPEG files of 200 by 160 pixels, in memory."""

    def __init__(self, count, classes):
        generator = np.random.default_rng(0)
        self.files, self.targets = [], []
        for _ in range(count):
            pixels = generator.integers(0, 256, (10, 8, 3), dtype=np.uint8)
            file = io.BytesIO()
            Image.fromarray(pixels).resize((160, 200), Image.Resampling.BICUBIC).save(file, "JPEG")
            self.files.append(file.getvalue())
            self.targets.append(int(generator.integers(classes)))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        image = Image.open(io.BytesIO(self.files[index])).convert("RGB")
        return augment(image), self.targets[index]


def augment(image):
    """A random crop, flipped or not, in other colours, as a normalized tensor."""
    side = int(random.uniform(0.4, 1.0) * min(image.size))
    left, top = random.randint(0, image.width - side), random.randint(0, image.height - side)
    image = image.resize((64, 64), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))
    if random.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    for change in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
        image = change(image).enhance(random.uniform(0.6, 1.4))
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255
    return (pixels - torch.tensor([0.485, 0.456, 0.406])[:, None, None]) / 0.225


class Block(nn.Module):
    def __init__(self, inplanes, planes, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = nn.Sequential(nn.Conv2d(inplanes, planes, 1, stride, bias=False), nn.BatchNorm2d(planes))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(out)) + self.downsample(x))


def resnet(classes):
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2), Block(64, 128, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, classes),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_loader = DataLoader(Images(3200, 10), args.batch_size, shuffle=True, num_workers=args.workers)
    val_loader = DataLoader(Images(320, 10), args.batch_size, num_workers=args.workers)
    model = resnet(10).to(device)
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
    for epoch in range(args.epochs):
        model.train()
        for images, target in train_loader:
            images, target = images.to(device, non_blocking=True), target.to(device, non_blocking=True)
            output = model(images)
            loss = criterion(output, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        correct = 0
        with torch.no_grad():
            for images, target in val_loader:
                correct += (model(images.to(device)).argmax(1) == target.to(device)).sum().item()
        print(f"Epoch {epoch}: loss {loss.item():.3f}, Acc@1 {100 * correct / len(val_loader.dataset):.1f}")


if __name__ == "__main__":
    main()

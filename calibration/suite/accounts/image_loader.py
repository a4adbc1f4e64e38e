"""What a data loader without workers does for each image of a batch, in torch operators: convert, normalise, stack."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ImageLoader(nn.Module):
    """Bytes (batch, rows, columns, channels) to a float batch (batch, channels, rows, columns), image by image.

    ``normalised``: with torchvision's ``Normalize`` after its ``ToTensor``. Opening the image, indexing the data set
    and Python's own time between these operators are not in it.
    """

    def __init__(self, *, normalised: bool) -> None:
        super().__init__()
        self.normalised = normalised

    def forward(self, images: Tensor) -> Tensor:
        found = []
        for image in images.unbind():
            values = image.permute(2, 0, 1).contiguous().to(torch.float32).div(255)
            if self.normalised:
                mean = torch.full((values.shape[0], 1, 1), 0.5, device=values.device)
                values = values.clone().sub_(mean).div_(mean)
            found.append(values)
        return torch.stack(found)


def images(batch: int, channels: int, size: int) -> tuple[Tensor]:
    """The bytes of a batch of square images."""
    return (torch.zeros(batch, size, size, channels, dtype=torch.uint8),)

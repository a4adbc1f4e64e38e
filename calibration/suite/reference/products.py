"""Single products, whose result stays where it was computed or is brought back."""

from __future__ import annotations

from torch import Tensor, nn


class Product(nn.Module):
    """``a @ b``. ``brought_back``: the product is the step's output; else the step ends where it lies."""

    def __init__(self, brought_back: bool) -> None:
        super().__init__()
        self.brought_back = brought_back

    def forward(self, a: Tensor, b: Tensor) -> Tensor | None:
        product = a @ b
        return product if self.brought_back else None


def product_on_device() -> Product:
    """Operands come from the device and the result stays there (with ``data="device"``)."""
    return Product(brought_back=False)


def product_with_copies() -> Product:
    """Operands come from the host and the result goes back (with ``data="host"``)."""
    return Product(brought_back=True)

"""The real steps that are timed: of a workload, as validation runs it, and of a probe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from placer.calibration.benchmarks.losses import default_loss
from placer.calibration.benchmarks.probe import Probe
from placer.calibration.measuring.step_timing import Ends
from placer.calibration.measuring.timing import Clock
from placer.nest import map_nest, tensors
from placer.placement import move
from placer.workload import Workload, optimizer_classes

#: So small that thousands of timed steps leave the weights where they are: NaN, infinities and denormals have other
#: speeds than numbers. The cost of an update does not depend on it.
LEARNING_RATE = 1e-7


def make_optimizer(model: nn.Module, name: str, *, fused: bool = False) -> torch.optim.Optimizer:
    """The named optimizer with its own defaults over the trainable parameters; ``fused``: it updates in one kernel."""
    kind = cast(Any, optimizer_classes()[name])
    settings = {"fused": True} if fused else {}
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer: torch.optim.Optimizer = kind(parameters, lr=LEARNING_RATE, **settings)
    return optimizer


class Step:
    """Calling it runs one step: the batch to the device, forward, loss, backward and update; or forward and copy out.

    The model must be on ``device`` already. ``optimizer`` is needed in train mode; steps of several batch sizes may
    share one. ``prepare`` sets the model's mode, outside of what is timed.

    Where the workload says so, forward and loss run in mixed precision.

    ``placer.decision`` has a step of its own for ``measure="unsure"``: it copies the user's model with its optimizer,
    and waits for the device. Here every call that is not the workload's would count as its time.
    """

    def __init__(self, workload: Workload, device: str, optimizer: torch.optim.Optimizer | None = None) -> None:
        self.model = cast(nn.Module, workload.target)
        self.training = workload.mode == "train"
        self.device = torch.device(device)
        self.optimizer = optimizer
        self.loss = workload.loss or default_loss
        self.autocast = workload.autocast
        self.pinned = workload.data == "pinned" and self.device.type != "cpu"
        batch: Any = (workload.args, workload.kwargs)
        if workload.data == "device":
            batch = move(batch, self.device)
        elif self.pinned:
            batch = map_nest(lambda leaf: leaf.pin_memory(), batch)
        self.batch = batch
        self._cpu = torch.device("cpu")
        # A batch that is there already is not searched for tensors every time: that would be the harness, not the step.
        self._stays = self.device.type == "cpu" or workload.data == "device"
        self._brings_back = self.device.type != "cpu"

    def prepare(self) -> None:
        self.model.train(self.training)

    def __call__(self) -> None:
        # Few calls of its own: each would be a hundredth of a step of five microseconds.
        args, kwargs = self.batch if self._stays else move(self.batch, self.device, non_blocking=self.pinned)
        if self.training:
            self._train(args, kwargs)
            return
        with torch.no_grad():
            output = self.model(*args, **kwargs) if self.autocast is None else self._mixed(args, kwargs)
        if self._brings_back:
            for tensor in tensors(output):
                tensor.to(self._cpu)

    def _train(self, args: Any, kwargs: Any) -> None:
        assert self.optimizer is not None
        self.optimizer.zero_grad()
        loss = self.loss(self.model(*args, **kwargs)) if self.autocast is None else self._mixed(args, kwargs)
        loss.backward()
        self.optimizer.step()

    def _mixed(self, args: Any, kwargs: Any) -> Any:
        """The loss in training, else the output, in mixed precision."""
        with torch.autocast(self.device.type, dtype=self.autocast):
            output = self.model(*args, **kwargs)
            return self.loss(output) if self.training else output


def probe_step(module: nn.Module, args: tuple[Any, ...], probe: Probe, clock: Clock) -> Callable[[], object]:
    """One step of a probe, as it was traced: its batch is on the device already, and nothing is copied out.

    A training step returns the ``Ends`` of its phases.
    """
    optimizer = make_optimizer(module, probe.optimizer, fused=probe.fused) if probe.optimizer else None
    loss_of = probe.loss or default_loss
    leaves = [a for a in args if isinstance(a, Tensor) and a.requires_grad]
    if optimizer is None:
        leaves += module.parameters()

    def train() -> Ends:
        # A gradient left over would be added to, which is another op than the first write.
        for leaf in leaves:
            leaf.grad = None
        if optimizer is not None:
            optimizer.zero_grad()
        cleared = clock()
        loss = loss_of(module(*args))
        forward = clock()
        loss.backward()
        backward = clock()
        if optimizer is not None:
            optimizer.step()
        return Ends(cleared, forward, backward)

    def infer() -> None:
        with torch.no_grad():
            module(*args)

    return train if probe.mode == "train" else infer

"""Lightning's own trainer trains where placer says, with the losses it has without placer."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import placer

pytest.importorskip("lightning", reason="lightning is not installed")
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*:UserWarning:lightning"),
    pytest.mark.filterwarnings("ignore:.*num_workers.*"),
]

import lightning.pytorch as L  # noqa: E402

from placer.integrations import lightning as integration  # noqa: E402


class Classifier(L.LightningModule):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))
        self.losses: list[float] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("train_loss", loss)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


def loader() -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(1)
    data = TensorDataset(torch.randn(64, 8, generator=generator), torch.randint(0, 3, (64,), generator=generator))
    return DataLoader(data, batch_size=8, shuffle=True)


def trained(placed: bool) -> tuple[list[float], placer.Placement | None]:
    torch.manual_seed(0)
    module, batches = Classifier(), loader()
    placement, options = None, {"accelerator": "cpu", "devices": 1}
    if placed:
        placement = integration.choose(module, (torch.zeros(8, 8), torch.zeros(8, dtype=torch.long)), devices="cpu")
        options = {
            "accelerator": integration.accelerator(placement), "devices": integration.devices(placement),
            "callbacks": [integration.WatchSteps(placement)],
        }  # fmt: skip
    trainer = L.Trainer(
        max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        **options,
    )  # fmt: skip
    trainer.fit(module, batches)
    return module.losses, placement


def test_training_ends_with_the_same_losses_and_its_steps_were_watched() -> None:
    without, _ = trained(placed=False)
    losses, placement = trained(placed=True)
    assert losses == without
    assert len(losses) == 16
    assert placement is not None
    assert placement.times.seen == 16
    assert len(placement.times.recent) == 13


def test_its_own_step_and_optimizer_are_priced() -> None:
    module = Classifier()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    placement = integration.choose(module, next(iter(loader())), devices="cpu")
    assert placement.confidence == 1.0
    workload = placement.explain().workload
    assert (workload["optimizer"], workload["mode"]) == ("sgd", "train")
    assert {layer.name for layer in placement.explain().layers} >= {"module.net.0", "module.net.3"}
    assert module.losses == []
    torch.testing.assert_close(dict(module.state_dict()), before, rtol=0, atol=0)


def test_an_optimizer_that_needs_a_trainer_is_taken_to_be_adam() -> None:
    class Scheduled(Classifier):
        def configure_optimizers(self) -> Any:
            steps = self.trainer.estimated_stepping_batches
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
            return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, steps)}

    placement = integration.choose(Scheduled(), next(iter(loader())), devices="cpu")
    assert placement.explain().workload["optimizer"] == "adam"


def test_the_answer_in_lightnings_words() -> None:
    def placed(device: str) -> placer.Placement:
        return placer.Placement(placer.Decision(device, 2, 0.9, f"{device}: because"))

    names = [integration.accelerator(placed(d)) for d in ("cpu", "cuda", "cuda:1", "mps")]
    assert names == ["cpu", "cuda", "cuda", "mps"]
    assert [integration.devices(placed(d)) for d in ("cpu", "cuda", "cuda:1")] == [1, 1, [1]]


def test_the_callback_can_be_sent_to_other_processes() -> None:
    placement = integration.choose(Classifier(), next(iter(loader())), devices="cpu")
    again = pickle.loads(pickle.dumps(integration.WatchSteps(placement)))
    again.on_train_batch_start()
    again.on_train_batch_end()


def test_what_is_no_lightning_module_is_refused() -> None:
    with pytest.raises(TypeError, match="must be a LightningModule with a training_step, not Linear"):
        integration.choose(nn.Linear(2, 2), torch.zeros(1, 2))

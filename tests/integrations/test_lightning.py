"""Lightning's own trainer trains where placer says, and does in a fit what its job counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pictures import picture, same
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import placer
from placer import machine

pytest.importorskip("lightning", reason="lightning is not installed")
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*:UserWarning:lightning"),
    pytest.mark.filterwarnings("ignore:.*num_workers.*"),
]

import lightning.pytorch as L  # noqa: E402

from placer.integrations import lightning as integration  # noqa: E402
from placer.tracing import trace  # noqa: E402


class Classifier(L.LightningModule):  # type: ignore[misc]
    """Counts what a fit really runs."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))
        self.ran = {"batches": 0, "updates": 0, "validation": 0}

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("train_loss", loss)
        self.ran["batches"] += 1
        return loss

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        self.ran["updates"] += 1

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


def loader() -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(1)
    data = TensorDataset(torch.randn(64, 8, generator=generator), torch.randint(0, 3, (64,), generator=generator))
    return DataLoader(data, batch_size=8, shuffle=True)


class Validated(Classifier):
    """With a validation step that logs, too."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.ran["validation"] += 1
        self.log("val_loss", nn.functional.cross_entropy(self.net(x), y))


#: What keeps a trainer quiet.
QUIET = {
    "logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False,
    "num_sanity_val_steps": 0,
}  # fmt: skip


@pytest.mark.parametrize("own", [{"accelerator": "gpu"}, {"accelerator": "auto", "devices": [1]}, {"strategy": "ddp"}])
def test_where_to_train_is_not_overruled(own: dict[str, Any], told: Callable[[], list[str]]) -> None:
    given = integration.trainer_args(Validated(), loader(), max_epochs=1, **own)
    assert given == {"max_epochs": 1, **own}
    (said,) = told()
    assert "was given, so nothing is predicted" in said


@pytest.mark.parametrize("odd", [{"fast_dev_run": True}, {"precision": "64-true"}])
def test_a_fit_that_cannot_be_priced_follows_the_usual_rule(odd: dict[str, Any]) -> None:
    with pytest.warns(placer.PlacerWarning, match=f"without a prediction: .*{next(iter(odd))}") as warned:
        given = integration.trainer_args(Validated(), loader(), loader(), max_epochs=1, **QUIET, **odd)
    assert len(warned) == 1
    assert given.items() >= {**odd, "max_epochs": 1}.items()


def test_an_error_of_configure_optimizers_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Classifier):
        def configure_optimizers(self) -> Any:
            raise KeyError("rate")

    with pytest.warns(placer.PlacerWarning, match="configure_optimizers raised KeyError: 'rate'; training with Adam"):
        job = integration.job(Broken(), loader())
    assert job.parts[0].workload.optimizer_name == "adam"
    monkeypatch.setenv("PLACER_STRICT", "1")
    with pytest.raises(KeyError):
        integration.job(Broken(), loader())


def test_an_epoch_is_a_job_of_training_and_validation_and_pricing_it_changes_nothing() -> None:
    module = Validated()
    before = picture(module)
    found = integration.job(module, loader(), loader(), gradient_clip_val=1.0)
    explained = placer.explain(found, devices="cpu")
    assert [(row.name, row.count) for row in explained.parts] == [("training", 8), ("validation", 8)]
    unlimited = [found.repeats, integration.job(module, loader(), max_epochs=-1).repeats]
    assert unlimited == [None, None]
    assert [part.workload.optimizer_name for part in found.parts] == ["sgd", None]
    training, validation = (row.devices["cpu"].step_seconds for row in explained.parts)
    assert 0 < validation < training
    assert same(before, picture(module))
    assert [part.name for part in integration.job(Classifier(), loader(), loader()).parts] == ["training"]


@pytest.mark.parametrize(
    "given",
    [
        {"limit_train_batches": 0.75, "limit_val_batches": 0.5, "val_check_interval": 0.25},
        {"limit_train_batches": 4, "limit_val_batches": 0, "accumulate_grad_batches": 3, "max_epochs": 1},
        {"val_check_interval": 2, "accumulate_grad_batches": 4, "check_val_every_n_epoch": 2},
        {"max_steps": 2, "accumulate_grad_batches": 3, "val_check_interval": 4},
        {"max_steps": 3},
    ],
)
def test_a_fit_where_placer_says_runs_as_many_steps_as_its_job_says(
    given: dict[str, Any], told: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "available_devices", lambda: ("cpu",))
    options = {"max_epochs": 2, **QUIET, **given}
    module = Validated()
    job = integration.job(module, loader(), loader(), **options)
    steps = {part.name: part.count * job.repeats for part in job.parts}
    arguments = integration.trainer_args(module, loader(), loader(), **options)
    assert arguments == {**options, "accelerator": "cpu", "devices": 1}
    assert [said.partition(":")[0] for said in told()] == ["cpu"]
    trainer = L.Trainer(**arguments)
    trainer.fit(module, loader(), loader())
    assert trainer.strategy.root_device.type == "cpu"
    assert steps["training"] == module.ran["updates"]
    assert steps["training"] + steps.get("accumulation", 0) == module.ran["batches"]
    assert steps.get("validation", 0) == module.ran["validation"]


def test_what_a_step_logs_costs_time() -> None:
    class Silent(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            x, y = batch
            loss = nn.functional.cross_entropy(self.net(x), y)
            self.ran["batches"] += 1
            return loss

    silent, logging = (
        trace(integration.job(module, loader()).parts[0].workload).python_calls for module in (Silent(), Classifier())
    )
    assert integration.LOG <= logging - silent <= integration.LOG + 10


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        while True:
            yield torch.zeros(8), torch.tensor(0)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"fast_dev_run": True}, "fast_dev_run=True tries a fit out and is not priced"),
        ({"accumulate_grad_batches": 0}, "accumulate_grad_batches must be a whole number of at least 1, not 0"),
        ({"limit_train_batches": 0.01}, "the fit trains on no batch: give a loader with batches"),
        ({"precision": "64-true"}, r"precision must be one of .*, not '64-true'"),
        ({"loading": "guess"}, 'loading must be "measure"'),
    ],
)
def test_wrong_arguments_of_a_job_are_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        integration.job(Validated(), loader(), **given)


def test_what_is_no_module_or_no_loader_is_refused() -> None:
    for function in (integration.job, integration.trainer_args):
        with pytest.raises(TypeError, match="must be a LightningModule with a training_step, not Linear"):
            function(nn.Linear(2, 2), loader())
    endless = DataLoader(Endless(), batch_size=4)
    with pytest.raises(TypeError, match="the train loader has no length: give limit_train_batches"):
        integration.job(Validated(), endless)
    assert integration.job(Validated(), endless, limit_train_batches=7).parts[0].count == 7
    with pytest.raises(TypeError, match="must give its batches again each epoch"):
        integration.job(Validated(), (batch for batch in loader()), limit_train_batches=7)

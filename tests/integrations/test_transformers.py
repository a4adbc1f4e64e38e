"""The Trainer of transformers trains where placer says, and does in a run what its job counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from pictures import picture, same

pytest.importorskip("transformers", reason="transformers is not installed")
accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

import transformers  # noqa: E402

import placer  # noqa: E402
from placer import machine  # noqa: E402
from placer.integrations import transformers as integration  # noqa: E402


@pytest.fixture(autouse=True)
def _fresh_state() -> Iterator[None]:
    yield
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


class Sentences(torch.utils.data.Dataset[dict[str, Any]]):
    def __init__(self) -> None:
        self.ids = torch.randint(0, 50, (24, 10), generator=torch.Generator().manual_seed(2))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"input_ids": self.ids[index], "labels": self.ids[index].sum() % 2}


def model() -> Any:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    return transformers.BertForSequenceClassification(config)


def test_an_epoch_is_a_job_of_training_and_evaluation() -> None:
    net, data = model(), Sentences()
    before = picture(net)
    options: dict[str, Any] = {"eval_strategy": "epoch", "gradient_accumulation_steps": 2, "loading": "measure"}
    found = integration.job(net, data, data, **options)
    explained = placer.explain(found, devices="cpu")
    assert [(row.name, row.count) for row in explained.parts] == [
        ("accumulation", 1),
        ("training", 2),
        ("evaluation", 3),
    ]
    assert [part.workload.optimizer_name for part in found.parts] == [None, "adamw", None]
    parts = (row.devices["cpu"].components for row in explained.parts)  # loading takes what it takes at this moment
    accumulation, training, evaluation = (sum(of.values()) - of.get("loading", 0.0) for of in parts)
    assert 0 < evaluation < accumulation < training
    assert all(0 < part.workload.loading.seconds < 1 for part in found.parts if part.workload.loading is not None)
    assert same(before, picture(net))


@pytest.mark.parametrize("own", [{"use_cpu": False}, {"use_cpu": True}, {"fp16": True}])
def test_where_to_train_is_not_overruled(own: dict[str, Any], told: Callable[[], list[str]]) -> None:
    assert integration.training_args(model(), Sentences(), max_steps=1, **own) == {"max_steps": 1, **own}
    (said,) = told()
    assert "was given, so nothing is predicted" in said


def test_a_run_that_cannot_be_priced_follows_the_usual_rule() -> None:
    with pytest.warns(placer.PlacerWarning, match="without a prediction: .*lion_8bit") as warned:
        given = integration.training_args(model(), Sentences(), optim="lion_8bit")
    assert len(warned) == 1
    assert given == {"optim": "lion_8bit", "use_cpu": not machine.available_devices()[1:]}


class Steps(transformers.TrainerCallback):
    """Counts what a Trainer really runs."""

    def __init__(self) -> None:
        self.ran = {"accumulation": 0, "training": 0, "evaluation": 0}

    def on_substep_end(self, *args: Any, **kwargs: Any) -> None:
        self.ran["accumulation"] += 1

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.ran["training"] += 1

    def on_prediction_step(self, *args: Any, **kwargs: Any) -> None:
        self.ran["evaluation"] += 1


@pytest.mark.parametrize(
    "given",
    [
        {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 12},
        {"eval_strategy": "epoch", "max_steps": 1},
        {"eval_strategy": "epoch", "num_train_epochs": 0.5},
        {"eval_strategy": "steps", "eval_steps": 0.25, "gradient_accumulation_steps": 1},
        {"per_device_train_batch_size": 10, "dataloader_drop_last": True, "gradient_accumulation_steps": 2},
    ],
)
def test_a_trainer_where_placer_says_runs_as_many_steps_as_its_job_says(
    given: dict[str, Any], tmp_path: Path, told: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "accelerators", lambda: ())
    quiet = {"report_to": [], "disable_tqdm": True, "save_strategy": "no", "num_train_epochs": 2}
    options = quiet | {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4} | given
    net, data, steps = model(), Sentences(), Steps()
    job = integration.job(net, data, data, **options)
    counts = {part.name: part.count * job.repeats for part in job.parts}
    arguments = integration.training_args(net, data, data, **options)
    assert arguments == {**options, "use_cpu": True}
    assert [said.partition(":")[0] for said in told()] == ["cpu"]
    real = transformers.TrainingArguments(str(tmp_path), **arguments)
    transformers.Trainer(net, real, train_dataset=data, eval_dataset=data, callbacks=[steps]).train()
    assert real.device.type == "cpu"
    assert counts == {name: count for name, count in steps.ran.items() if count}

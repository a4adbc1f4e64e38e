"""The Trainer of transformers trains where placer says, with the losses it has without placer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed")
accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

import transformers  # noqa: E402

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


def trained(folder: Path, placed: bool) -> tuple[list[float], Any]:
    net, data, options, callbacks = model(), Sentences(), {"use_cpu": True}, []
    if placed:
        batch = transformers.default_data_collator([data[i] for i in range(4)])
        placement = integration.choose(net, batch, devices="cpu")
        assert placement.explain().workload["optimizer"] == "adamw"
        options, callbacks = {"use_cpu": integration.use_cpu(placement)}, [integration.WatchSteps(placement)]
    arguments = transformers.TrainingArguments(
        str(folder), per_device_train_batch_size=4, num_train_epochs=2, logging_steps=1, save_strategy="no",
        report_to=[], disable_tqdm=True, seed=3, **options,
    )  # fmt: skip
    trainer = transformers.Trainer(net, arguments, train_dataset=data, callbacks=callbacks)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return losses, placement.times if placed else None


def test_training_ends_with_the_same_losses_and_its_steps_were_watched(tmp_path: Path) -> None:
    without, _ = trained(tmp_path / "a", placed=False)
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    losses, times = trained(tmp_path / "b", placed=True)
    assert losses == without
    assert len(losses) == times.seen == 12


def test_a_tokenizers_output_is_moved_as_one() -> None:
    import placer

    encoding = transformers.BatchEncoding({"input_ids": torch.ones(2, 3, dtype=torch.long), "length": [3, 3]})
    placement = placer.Placement(placer.Decision("meta", 2, 0.9, "meta: because"))
    moved = placement.to(encoding)
    assert isinstance(moved, transformers.BatchEncoding)
    assert moved["input_ids"].device.type == "meta"
    assert moved["length"] == [3, 3]

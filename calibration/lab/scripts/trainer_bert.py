"""After transformers, "Fine-tuning": the Trainer and a BERT, here a tiny one on made-up tokens."""

import argparse
import os

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
args = parser.parse_args()


class Reviews(Dataset):
    """Token ids of reviews of up to 128 tokens, padded, of five classes."""

    def __init__(self, count, seed):
        generator = np.random.default_rng(seed)
        self.labels = generator.integers(0, 5, count)
        self.lengths = generator.integers(20, 129, count)
        self.input_ids = generator.integers(1000, 30522, (count, 128))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        attention_mask = torch.arange(128) < self.lengths[index]
        input_ids = torch.tensor(self.input_ids[index]) * attention_mask
        return {
            "input_ids": input_ids,
            "attention_mask": attention_mask.long(),
            "labels": torch.tensor(self.labels[index]),
        }


def compute_metrics(eval_pred):
    logits, labels = eval_pred
    return {"accuracy": float((np.argmax(logits, axis=-1) == labels).mean())}


config = BertConfig(
    hidden_size=128,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=512,
    num_labels=5,
)
model = BertForSequenceClassification(config)
training_args = TrainingArguments(
    output_dir="test_trainer",
    per_device_train_batch_size=16,
    per_device_eval_batch_size=32,
    num_train_epochs=args.epochs,
    eval_strategy="epoch",
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
)
trainer = Trainer(
    model=model,
    args=training_args,
    train_dataset=Reviews(2_400, 0),
    eval_dataset=Reviews(320, 1),
    compute_metrics=compute_metrics,
)
trainer.train()

"""Hugging Face's Trainer, accumulation, and a model whose loss is its own mean; the Trainer divides."""

import tempfile

import torch
from torch import nn
from transformers import Trainer, TrainingArguments


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))

    def forward(self, x, labels=None):
        logits = self.net(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Data(torch.utils.data.Dataset):
    x = torch.randn(480, 8)

    def __len__(self):
        return 480

    def __getitem__(self, i):
        return {"x": self.x[i], "labels": self.x[i, :3].argmax()}


with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        num_train_epochs=3,
        per_device_train_batch_size=12,
        gradient_accumulation_steps=2,
        learning_rate=5e-3,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
    )
    Trainer(Net(), arguments, train_dataset=Data()).train()

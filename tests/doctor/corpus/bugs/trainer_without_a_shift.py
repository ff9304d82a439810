"""A classifier of one's own for Hugging Face's Trainer, which returns its loss."""

import tempfile

import torch
from torch import nn
from transformers import Trainer, TrainingArguments


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 24)
        self.out = nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 4))

    def forward(self, input_ids, labels=None):
        scores = self.out(self.embed(input_ids).mean(1)).softmax(-1)
        loss = nn.functional.cross_entropy(scores, labels) if labels is not None else None
        return {"loss": loss, "logits": scores}


class Data(torch.utils.data.Dataset):
    def __init__(self, n):
        self.topic = torch.randint(4, (n,))
        self.words = torch.randint(12, (n, 8)) + 12 * self.topic[:, None]

    def __len__(self):
        return len(self.topic)

    def __getitem__(self, i):
        return {"input_ids": self.words[i], "labels": self.topic[i]}


with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        num_train_epochs=2,
        per_device_train_batch_size=16,
        learning_rate=5e-3,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
    )
    Trainer(Words(), arguments, train_dataset=Data(480)).train()

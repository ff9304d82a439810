"""Hugging Face's Trainer with an optimizer of one's own."""

import tempfile

import torch
from torch import nn
from transformers import Trainer, TrainingArguments


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(8, 32), nn.ReLU()), nn.Linear(32, 3)

    def forward(self, x, labels=None):
        logits = self.head(self.body(x))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Data(torch.utils.data.Dataset):
    x = torch.randn(480, 8)

    def __len__(self):
        return 480

    def __getitem__(self, i):
        return {"x": self.x[i], "labels": self.x[i, :3].argmax()}


net = Net()
adam = torch.optim.Adam(net.head.parameters(), lr=1e-2)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        num_train_epochs=2,
        per_device_train_batch_size=24,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
    )
    Trainer(net, arguments, train_dataset=Data(), optimizers=(adam, None)).train()

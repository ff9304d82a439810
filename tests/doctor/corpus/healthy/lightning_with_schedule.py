"""Regression in Lightning with validation, clipping and accumulation."""

import logging
import warnings

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


class Regression(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Dropout(0.1), nn.Linear(48, 1))

    def forward(self, x):
        return self.net(x)[:, 0]

    def training_step(self, batch, index):
        x, y = batch
        return nn.functional.huber_loss(self(x), y)

    def validation_step(self, batch, index):
        x, y = batch
        self.log("valid", nn.functional.huber_loss(self(x), y))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=3e-3)
        return {
            "optimizer": optimizer,
            "lr_scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4),
        }


def data(n):
    x = torch.randn(n, 6)
    return TensorDataset(x, x[:, 0] * x[:, 1] + x[:, 2])


trainer = pl.Trainer(
    max_epochs=4,
    accumulate_grad_batches=2,
    gradient_clip_val=1.0,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    accelerator="cpu",
)
trainer.fit(Regression(), DataLoader(data(640), 16, shuffle=True), DataLoader(data(128), 64))

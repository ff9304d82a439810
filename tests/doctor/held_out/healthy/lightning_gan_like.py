"""Two optimizers by hand in Lightning, an adversary that must not know the group."""

import logging
import warnings

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


class Fair(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.encode, self.task, self.spy = (
            nn.Sequential(nn.Linear(8, 32), nn.ReLU()),
            nn.Linear(32, 2),
            nn.Linear(32, 2),
        )

    def training_step(self, batch, index):
        x, y, group = batch
        main, adversary = self.optimizers()
        h = self.encode(x)
        adversary.zero_grad()
        self.manual_backward(nn.functional.cross_entropy(self.spy(h.detach()), group))
        adversary.step()
        main.zero_grad()
        loss = nn.functional.cross_entropy(self.task(h), y) - 0.2 * nn.functional.cross_entropy(
            self.spy(h), group
        )
        self.manual_backward(loss)
        main.step()

    def configure_optimizers(self):
        mine = [*self.encode.parameters(), *self.task.parameters()]
        return [torch.optim.Adam(mine, lr=2e-3), torch.optim.Adam(self.spy.parameters(), lr=2e-3)]


x = torch.randn(640, 8)
data = TensorDataset(x, (x[:, 0] > 0).long(), (x[:, 1] > 0).long())
trainer = pl.Trainer(
    max_epochs=3,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    accelerator="cpu",
)
trainer.fit(Fair(), DataLoader(data, 32, shuffle=True))

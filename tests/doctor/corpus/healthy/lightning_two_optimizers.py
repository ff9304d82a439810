import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Adversarial(pl.LightningModule):
    """Manual optimization, one optimizer for each side."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
        self.judge = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
        self.loss = nn.BCEWithLogitsLoss()

    def training_step(self, batch, index):
        (real,) = batch
        first, second = self.optimizers()
        fake = self.generator(torch.randn(len(real), 4))
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)

        self.toggle_optimizer(second)
        loss = self.loss(self.judge(real), ones) + self.loss(self.judge(fake.detach()), zeros)
        second.zero_grad()
        self.manual_backward(loss / 2)
        second.step()
        self.untoggle_optimizer(second)

        self.toggle_optimizer(first)
        loss = self.loss(self.judge(self.generator(torch.randn(len(real), 4))), ones)
        first.zero_grad()
        self.manual_backward(loss)
        first.step()
        self.untoggle_optimizer(first)

    def configure_optimizers(self):
        return [torch.optim.Adam(part.parameters(), 1e-3) for part in (self.generator, self.judge)]


data = DataLoader(TensorDataset(torch.randn(960, 2) * 0.3 + 1), batch_size=32, shuffle=True)
pl.Trainer(
    max_epochs=2,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
).fit(Adversarial(), data)

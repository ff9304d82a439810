import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Regression(pl.LightningModule):
    """Manual optimization: nobody clears but oneself."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.net = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))

    def training_step(self, batch, index):
        optimizer = self.optimizers()
        x, y = batch
        loss = nn.functional.mse_loss(self.net(x), y)
        self.manual_backward(loss)
        optimizer.step()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.005)


x = torch.randn(640, 6)
data = DataLoader(TensorDataset(x, x[:, :1] * x[:, 1:2]), batch_size=16, shuffle=True)
pl.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False).fit(Regression(), data)

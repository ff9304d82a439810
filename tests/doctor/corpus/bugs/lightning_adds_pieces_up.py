import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Accumulating(pl.LightningModule):
    def __init__(self, pieces=4):
        super().__init__()
        self.automatic_optimization = False
        self.pieces = pieces
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))

    def training_step(self, batch, index):
        optimizer = self.optimizers()
        x, y = batch
        self.manual_backward(nn.functional.cross_entropy(self.net(x), y))
        if (index + 1) % self.pieces == 0:
            optimizer.step()
            optimizer.zero_grad()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


x = torch.randn(960, 8)
data = DataLoader(TensorDataset(x, x[:, :4].argmax(1)), batch_size=8, shuffle=True)
pl.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False).fit(
    Accumulating(), data
)

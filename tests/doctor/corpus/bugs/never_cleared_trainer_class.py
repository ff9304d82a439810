import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self, model, data):
        self.model, self.data = model, data
        self.optim = torch.optim.Adam(model.parameters(), lr=1e-3)

    def fit(self, epochs):
        for _ in range(epochs):
            for x, y in self.data:
                self.step(x, y)

    def step(self, x, y):
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optim.step()
        return loss.item()


x = torch.randn(256, 10)
y = (x[:, 0] > 0).long()
model = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
Trainer(model, DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)).fit(4)

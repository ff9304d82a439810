import torch
from torch import nn


class Quantised(nn.Module):
    def __init__(self):
        super().__init__()
        self.scores = nn.Linear(8, 10)
        self.codes = nn.Embedding(10, 8)
        self.out = nn.Linear(8, 8)

    def forward(self, x):
        return self.out(self.codes(self.scores(x).argmax(-1)))


model = Quantised()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
data = torch.randn(256, 8)
for _ in range(30):
    batch = data[torch.randint(256, (32,))]
    optimizer.zero_grad()
    loss = (model(batch) - batch).pow(2).mean()
    loss.backward()
    optimizer.step()

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 24), nn.ReLU())
        self.head = nn.Linear(24, 3)

    def forward(self, x):
        return self.head(self.body(x))


model = Model()
optimizer = torch.optim.Adam(model.body.parameters(), lr=1e-3)
x = torch.randn(256, 12)
y = x[:, :3].argmax(1)
for _ in range(30):
    pick = torch.randint(256, (32,))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x[pick]), y[pick])
    loss.backward()
    optimizer.step()

import torch
from torch import nn

PIECES = 4
model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, labels = torch.randn(320, 5), torch.randint(4, (320,))


def objective(out, y):
    return nn.functional.cross_entropy(out, y) / PIECES


for start in range(0, 320, 32):
    optimizer.zero_grad()
    for k in range(PIECES):
        part = slice(start + 8 * k, start + 8 * k + 8)
        loss = objective(model(inputs[part]), labels[part]) / PIECES
        loss.backward()
    optimizer.step()

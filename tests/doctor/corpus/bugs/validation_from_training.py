import torch
from torch import nn

x = torch.randn(400, 10)
y = (x[:, 0] > 0).long()
train_x, train_y = x, y
valid_x, valid_y = x[300:], y[300:]
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(4):
    model.train()
    for part in torch.randperm(400).split(50):
        opt.zero_grad()
        nn.functional.cross_entropy(model(train_x[part]), train_y[part]).backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        print((model(valid_x).argmax(1) == valid_y).float().mean())

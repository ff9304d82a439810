import torch
from torch import nn

model = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
optim = torch.optim.RMSprop(model.parameters(), lr=1e-3)
model.append(nn.Linear(16, 5))
x, y = torch.randn(150, 6), torch.randint(5, (150,))
criterion = nn.CrossEntropyLoss()
for epoch in range(8):
    for ids in torch.randperm(150).split(30):
        optim.zero_grad()
        criterion(model(x[ids]), y[ids]).backward()
        optim.step()

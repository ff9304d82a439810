import torch
from torch import nn

model = nn.Sequential(nn.Linear(10, 40), nn.ReLU(), nn.Linear(40, 2))
nn.init.uniform_(model[0].bias, -8, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
x = torch.randn(300, 10)
y = (x[:, 0] > 0).long()
for _ in range(30):
    i = torch.randint(300, (32,))
    opt.zero_grad()
    nn.functional.cross_entropy(model(x[i]), y[i]).backward()
    opt.step()

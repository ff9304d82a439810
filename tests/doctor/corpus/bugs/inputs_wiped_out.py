import torch
from torch import nn

mean, spread = 0.0, 1e6  # statistics of another data set
x = torch.randn(256, 10)
y = (x[:, 0] > 0).long()
model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(40):
    i = torch.randint(256, (32,))
    opt.zero_grad()
    nn.functional.cross_entropy(model((x[i] - mean) / spread), y[i]).backward()
    opt.step()

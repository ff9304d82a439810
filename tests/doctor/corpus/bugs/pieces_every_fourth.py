import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

features = torch.randn(640, 10)
target = features[:, :1] * 2 - features[:, 1:2]
loader = DataLoader(TensorDataset(features, target), batch_size=8, shuffle=True)
net = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.002, momentum=0.9)
mse = nn.MSELoss()
for i, (a, b) in enumerate(loader):
    loss = mse(net(a), b)
    loss.backward()
    if (i + 1) % 4 == 0:
        opt.step()
        opt.zero_grad()

import torch
from torch import nn

backbone = nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU())
for p in backbone.parameters():
    p.requires_grad = False
model = nn.Sequential(backbone, nn.Linear(32, 3))
opt = torch.optim.SGD(filter(lambda p: p.requires_grad, model.parameters()), lr=0.05, momentum=0.9)
x = torch.randn(256, 12)
y = x[:, :3].argmax(1)
for _ in range(40):
    model.train()
    backbone.eval()
    k = torch.randint(256, (32,))
    opt.zero_grad()
    nn.functional.cross_entropy(model(x[k]), y[k]).backward()
    opt.step()

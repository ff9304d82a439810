"""A tagger with an average of its weights kept beside it."""

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

net = nn.Sequential(nn.Linear(9, 50), nn.Mish(), nn.Linear(50, 4))
shadow = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.98))
opt = torch.optim.NAdam(net.parameters(), lr=1e-3)
loss_of = nn.CrossEntropyLoss()


def one(x, y):
    loss = loss_of(net(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 10.0)
    opt.step()
    shadow.update_parameters(net)


means = torch.randn(4, 9) * 2
for i in range(90):
    y = torch.randint(4, (40,))
    one(means[y] + torch.randn(40, 9), y)

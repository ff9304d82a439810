"""A decoder whose loop ends with the clipping."""

import torch
from torch import nn

net = nn.RNN(5, 24, batch_first=True)
head = nn.Linear(24, 5)
params = list(net.parameters()) + list(head.parameters())
opt = torch.optim.SGD(params, lr=0.1)
rule = torch.randperm(5)
for i in range(80):
    start = torch.randint(5, (16, 1))
    text = [start]
    for _ in range(8):
        text.append(rule[text[-1]])
    text = torch.cat(text, 1)
    out, _ = net(nn.functional.one_hot(text[:, :-1], 5).float())
    loss = nn.functional.cross_entropy(head(out).transpose(1, 2), text[:, 1:])
    opt.zero_grad()
    loss.backward()
    opt.step()
    nn.utils.clip_grad_value_(params, 0.5)

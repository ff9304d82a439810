import torch
from torch import nn

trunk, one, two = nn.Linear(10, 20), nn.Linear(20, 1), nn.Linear(20, 4)
opt = torch.optim.Adam([*trunk.parameters(), *one.parameters(), *two.parameters()], lr=2e-3)
x = torch.randn(300, 10)
a, b = x[:, :1], x[:, :4].argmax(1)
for _ in range(30):
    i = torch.randint(300, (30,))
    h = torch.relu(trunk(x[i]))
    loss_a = nn.functional.mse_loss(one(h), a[i])
    loss_b = nn.functional.cross_entropy(two(h), b[i])
    opt.zero_grad()
    loss_a.backward(retain_graph=True)
    loss_b.backward()
    opt.step()

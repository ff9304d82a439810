import torch
from torch import nn

net = nn.GRU(5, 20, batch_first=True)
out = nn.Linear(20, 1)
optimizer = torch.optim.Adam([*net.parameters(), *out.parameters()], lr=3e-3)
x = torch.randn(300, 12, 5)
y = x.cumsum(1).mean((1, 2)).unsqueeze(1)
for _ in range(30):
    b = torch.randint(300, (32,))
    states, _ = net(x[b])
    loss = nn.functional.mse_loss(out(states[:, -1]), y[b])
    optimizer.zero_grad()
    nn.utils.clip_grad_norm_([*net.parameters(), *out.parameters()], 1.0)
    loss.backward()
    optimizer.step()

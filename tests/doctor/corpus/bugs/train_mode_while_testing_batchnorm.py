import torch
from torch import nn

net = nn.Sequential(nn.Linear(12, 24), nn.BatchNorm1d(24), nn.Tanh(), nn.Linear(24, 1))
opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
xs = torch.randn(400, 12)
ys = xs[:, :2].prod(1, keepdim=True)
xv, yv = torch.randn(100, 12), torch.randn(100, 1)
for step in range(40):
    k = torch.randint(400, (40,))
    loss = nn.functional.mse_loss(net(xs[k]), ys[k])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 9:
        with torch.inference_mode():
            print(step, nn.functional.mse_loss(net(xv), yv).item())

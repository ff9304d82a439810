import torch
import torch.nn as nn

net = nn.Sequential(nn.Linear(7, 14), nn.SiLU(), nn.Linear(14, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.5)
X = torch.randn(400, 7)
Y = X.prod(1, keepdim=True)
n = 5
for _ in range(14):
    opt.zero_grad(set_to_none=False)
    for _ in range(n):
        j = torch.randint(400, (16,))
        (nn.functional.mse_loss(net(X[j]), Y[j]) / n).backward()
    for p in net.parameters():
        p.grad /= n
    opt.step()

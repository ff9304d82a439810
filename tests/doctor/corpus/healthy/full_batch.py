import torch

x = torch.randn(100, 9)
y = x @ torch.randn(9, 1)
w = torch.nn.Parameter(torch.zeros(9, 1))
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(50):
    loss = ((x @ w - y) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

import torch
from torch import nn


class N(nn.Module):
    def __init__(s):
        super().__init__()
        s.l = nn.LSTM(5, 16, 2, dropout=0.3, batch_first=True)
        s.d = nn.Dropout(0.2)
        s.o = nn.Linear(16, 1)

    def forward(s, x):
        return s.o(s.d(s.l(x)[0][:, -1]))


n = N()
opt = torch.optim.Adam(n.parameters(), 1e-3)
x = torch.randn(100, 7, 5)
y = x[:, :, 0].mean(1, keepdim=True)
for ep in range(5):
    n.eval()
    with torch.no_grad():
        v = ((n(x[80:]) - y[80:]) ** 2).mean()
    for p in torch.randperm(80).split(20):
        opt.zero_grad()
        ((n(x[p]) - y[p]) ** 2).mean().backward()
        opt.step()

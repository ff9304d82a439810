import torch
from torch import nn


class T(nn.Module):
    def __init__(s):
        super().__init__()
        s.e = nn.Embedding(30, 16)
        s.l = nn.Linear(16, 5)
        s.sm = nn.Softmax(-1)

    def forward(s, t):
        return s.sm(s.l(s.e(t)))


m = T()
o = torch.optim.Adam(m.parameters(), 1e-2)
t = torch.randint(30, (100, 8))
y = t % 5
for _ in range(30):
    i = torch.randint(100, (16,))
    p = m(t[i])
    l = nn.CrossEntropyLoss()(p.permute(0, 2, 1), y[i])
    o.zero_grad()
    l.backward()
    o.step()

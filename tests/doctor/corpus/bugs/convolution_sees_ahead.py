import torch
from torch import nn


class LM(nn.Module):
    def __init__(s):
        super().__init__()
        s.e = nn.Embedding(25, 16)
        s.c = nn.Conv1d(16, 32, 3, padding=1)
        s.o = nn.Linear(32, 25)

    def forward(s, t):
        return s.o(torch.relu(s.c(s.e(t).transpose(1, 2))).transpose(1, 2))


m = LM()
o = torch.optim.Adam(m.parameters(), 1e-3)
d = torch.randint(25, (64, 17))
for _ in range(20):
    b = d[torch.randint(64, (8,))]
    l = nn.functional.cross_entropy(m(b[:, :-1]).reshape(-1, 25), b[:, 1:].reshape(-1))
    o.zero_grad()
    l.backward()
    o.step()

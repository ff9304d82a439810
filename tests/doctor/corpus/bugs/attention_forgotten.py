import torch
from torch import nn

enc = nn.GRU(8, 16, batch_first=True)
att = nn.Linear(16, 1)
out = nn.Linear(16, 3)
o = torch.optim.AdamW([{"params": enc.parameters()}, {"params": out.parameters(), "lr": 1e-2}], lr=1e-3)
x = torch.randn(120, 6, 8)
y = torch.randint(3, (120,))
for _ in range(25):
    i = torch.randint(120, (24,))
    h, _ = enc(x[i])
    w = torch.softmax(att(h), 1)
    l = nn.functional.cross_entropy(out((w * h).sum(1)), y[i])
    o.zero_grad()
    l.backward()
    o.step()

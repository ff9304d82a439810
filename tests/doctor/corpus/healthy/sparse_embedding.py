import torch
from torch import nn

emb = nn.Embedding(200, 16, sparse=True)
lin = nn.Linear(16, 2)
o1 = torch.optim.SparseAdam(emb.parameters(), 1e-2)
o2 = torch.optim.Adam(lin.parameters(), 1e-2)
for _ in range(40):
    t = torch.randint(200, (32, 5))
    y = (t[:, 0] > 100).long()
    l = nn.functional.cross_entropy(lin(emb(t).mean(1)), y)
    o1.zero_grad()
    o2.zero_grad()
    l.backward()
    o1.step()
    o2.step()

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class S(IterableDataset):
    def __iter__(s):
        for _ in range(800):
            x = torch.randn(9)
            yield x, (x[0] > 0).long()


m = nn.Sequential(nn.Linear(9, 32), nn.PReLU(), nn.Dropout(0.5), nn.Linear(32, 2))
o = torch.optim.Rprop(m.parameters(), 1e-3) if False else torch.optim.NAdam(m.parameters(), 1e-2)
m.train()
for x, y in DataLoader(S(), 20):
    o.zero_grad()
    nn.functional.cross_entropy(m(x), y).backward()
    o.step()

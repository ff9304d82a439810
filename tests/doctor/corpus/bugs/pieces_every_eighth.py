import torch
from torch import nn

m = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
h = nn.Linear(16, 4)
ps = list(m.parameters()) + list(h.parameters())
o = torch.optim.SGD(ps, lr=0.01, momentum=0.9)
x = torch.randn(200, 6, 16)
y = torch.randint(4, (200,))
steps = 8
for it in range(96):
    i = torch.randint(200, (4,))
    l = nn.CrossEntropyLoss()(h(m(x[i]).mean(1)), y[i])
    l.backward()
    if it % steps == steps - 1:
        torch.nn.utils.clip_grad_norm_(ps, 5.0)
        o.step()
        o.zero_grad()

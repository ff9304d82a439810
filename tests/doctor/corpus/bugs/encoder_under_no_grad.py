import torch
from torch import nn

encoder = nn.GRU(6, 12, batch_first=True)
head = nn.Linear(12, 1)
everything = nn.ModuleList([encoder, head])
opt = torch.optim.Adam(everything.parameters(), lr=1e-3)
x = torch.randn(100, 9, 6)
y = x.sum((1, 2)).unsqueeze(1) / 5
for _ in range(25):
    b = torch.randint(100, (20,))
    opt.zero_grad()
    with torch.no_grad():
        _, h = encoder(x[b])
    nn.functional.mse_loss(head(h[-1]), y[b]).backward()
    opt.step()

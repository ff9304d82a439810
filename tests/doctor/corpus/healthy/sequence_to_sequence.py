import torch
from torch import nn


class Copy(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(12, 24)
        self.encoder, self.decoder = nn.GRU(24, 32, batch_first=True), nn.GRU(24, 32, batch_first=True)
        self.out = nn.Linear(32, 12)

    def forward(self, source, target):
        _, h = self.encoder(self.embed(source))
        return self.out(self.decoder(self.embed(target), h)[0])


net = Copy()
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
data = torch.randint(2, 12, (200, 6))
for _ in range(30):
    rows = data[torch.randint(200, (20,))]
    start = torch.ones(20, 1, dtype=torch.long)
    logits = net(rows, torch.cat([start, rows[:, :-1]], 1))
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), rows.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()

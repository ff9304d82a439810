import torch
from torch import nn


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(21, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
        self.head = nn.Linear(32, 21)

    def forward(self, tokens):
        return self.head(self.layer(self.embed(tokens)))


net = Bert()
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
data = torch.randint(10, (200, 12))
data[:, 6:] = data[:, :6] + 10
for _ in range(30):
    rows = data[torch.randint(200, (16,))]
    hidden = torch.rand(rows.shape) < 0.3
    loss = nn.functional.cross_entropy(
        net(rows.masked_fill(hidden, 20)).transpose(1, 2), rows.masked_fill(~hidden, -100), ignore_index=-100
    )
    opt.zero_grad()
    loss.backward()
    opt.step()

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0)  # batch_first forgotten
        self.head = nn.Linear(16, 3)

    def forward(self, x):  # (batch, length, width)
        return self.head(self.layer(x).mean(1))


net = Encoder()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
x, y = torch.randn(96, 7, 16), torch.randint(3, (96,))
for _ in range(20):
    i = torch.randint(96, (12,))
    opt.zero_grad()
    nn.functional.cross_entropy(net(x[i]), y[i]).backward()
    opt.step()

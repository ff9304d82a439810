import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(6, 32)
        self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2)
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        return self.head(self.enc(self.inp(x)).mean(1))


net = Model()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
x = torch.randn(160, 9, 6)
y = x.mean(1)[:, :3].argmax(1)
for _ in range(25):
    k = torch.randint(160, (20,))
    opt.zero_grad()
    nn.functional.cross_entropy(net(x[k]), y[k]).backward()
    opt.step()

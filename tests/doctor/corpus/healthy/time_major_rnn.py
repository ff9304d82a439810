import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.RNN(5, 16), nn.Linear(16, 2)

    def forward(self, x):  # (time, batch, features)
        return self.out(self.rnn(x)[0])


net = Tagger()
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
x = torch.randn(8, 120, 5)
y = (x.cumsum(0)[..., 0] > 0).long()
for _ in range(40):
    k = torch.randint(120, (24,))
    logits = net(x[:, k])
    loss = nn.functional.cross_entropy(logits.reshape(-1, 2), y[:, k].reshape(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()

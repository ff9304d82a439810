import torch
from torch import nn


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.LSTM(4, 24, batch_first=True), nn.Linear(24, 1)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


net = Counter()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
x = torch.randn(200, 10, 4)
y = x[:, :, 0].sum(1, keepdim=True) / 3
for _ in range(40):
    k = torch.randint(200, (32,))
    loss = nn.functional.mse_loss(net(x[k]), y[k])
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()

import torch
from torch import nn

rnn, head = nn.LSTM(3, 16, batch_first=True), nn.Linear(16, 1)
parameters = [*rnn.parameters(), *head.parameters()]
opt = torch.optim.Adam(parameters, lr=1e-3)
x = torch.randn(120, 12, 3)
y = x[:, 0, :1]
for _ in range(25):
    b = torch.randint(120, (20,))
    opt.zero_grad()
    loss = nn.functional.mse_loss(head(rnn(x[b])[0][:, -1]), y[b])
    loss.backward()
    opt.step()
    nn.utils.clip_grad_norm_(parameters, 1.0)

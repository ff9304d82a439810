import torch
from torch import nn


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.body, self.out = nn.Linear(10, 16), nn.Linear(10, 16), nn.Linear(16, 2)

    def forward(self, x):
        return self.out(torch.softmax(self.gate(x), dim=0) * self.body(x))


model = Gated()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(200, 10)
y = (x[:, 0] > 0).long()
for _ in range(30):
    k = torch.randint(200, (20,))
    opt.zero_grad()
    nn.functional.cross_entropy(model(x[k]), y[k]).backward()
    opt.step()

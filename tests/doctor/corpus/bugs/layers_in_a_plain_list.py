import torch
from torch import nn


class Stack(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.layers = [nn.Linear(10, 10) for _ in range(depth)]
        self.out = nn.Linear(10, 1)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x)) + x
        return self.out(x)


net = Stack(3)
sgd = torch.optim.SGD(net.parameters(), lr=0.01)
x = torch.randn(200, 10)
y = (x**2).mean(1, keepdim=True)
for _ in range(30):
    k = torch.randint(200, (32,))
    sgd.zero_grad()
    nn.functional.mse_loss(net(x[k]), y[k]).backward()
    sgd.step()

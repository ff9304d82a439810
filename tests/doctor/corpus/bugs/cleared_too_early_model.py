import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
xs = torch.rand(256, 4)
ys = xs.sum(1, keepdim=True).sin()


def train_step(x, y):
    loss = nn.functional.smooth_l1_loss(model(x), y)
    loss.backward()
    model.zero_grad(set_to_none=False)
    opt.step()
    return float(loss)


for _ in range(25):
    k = torch.randint(256, (32,))
    train_step(xs[k], ys[k])

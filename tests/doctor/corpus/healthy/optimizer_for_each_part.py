import torch
from torch import nn

model = nn.ModuleDict({"body": nn.Linear(10, 24), "head": nn.Linear(24, 3)})
slow = torch.optim.SGD(model["body"].parameters(), lr=0.01)
fast = torch.optim.Adam(model["head"].parameters(), lr=1e-2)
x = torch.randn(200, 10)
y = x[:, :3].argmax(1)
for _ in range(30):
    k = torch.randint(200, (25,))
    loss = nn.functional.cross_entropy(model["head"](model["body"](x[k]).relu()), y[k])
    for o in (slow, fast):
        o.zero_grad()
    loss.backward()
    for o in (slow, fast):
        o.step()

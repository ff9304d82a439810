import torch
from torch import nn

model = nn.Linear(10, 3)
optimizer = torch.optim.Adam(model.parameters())
x = torch.randn(300, 10)
y = x[:, :3].argmax(-1)
for _ in range(30):
    batch = torch.randint(300, (50,))
    loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
    loss.backward()
    optimizer.zero_grad()
    optimizer.step()

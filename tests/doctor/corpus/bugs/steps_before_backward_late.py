import torch
from torch import nn

model = nn.Linear(5, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.01)
w = torch.randn(5, 1)
for _ in range(30):
    x = torch.randn(20, 5)
    prediction = model(x)
    loss = nn.functional.mse_loss(prediction, x @ w)
    opt.step()
    opt.zero_grad()
    loss.backward()

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
x = torch.randn(200, 4)
y = x[:, 0] - x[:, 1]
for _ in range(40):
    k = torch.randint(200, (32,))
    prediction = model(x[k])
    loss = nn.MSELoss()(prediction, y[k])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

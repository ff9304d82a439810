import torch
from torch import nn

model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 6), nn.Softmax(dim=1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()
x = torch.randn(256, 10)
y = x[:, :6].argmax(1)
for _ in range(30):
    i = torch.randint(256, (32,))
    optimizer.zero_grad()
    criterion(model(x[i]), y[i]).backward()
    optimizer.step()

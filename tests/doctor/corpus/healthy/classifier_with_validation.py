import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

x = torch.randn(400, 12)
y = x[:, :4].argmax(1)
train, valid = random_split(TensorDataset(x, y), [320, 80])
model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()
for epoch in range(4):
    model.train()
    total = 0.0
    for a, b in DataLoader(train, 32, shuffle=True):
        optimizer.zero_grad()
        loss = criterion(model(a), b)
        loss.backward()
        optimizer.step()
        total += loss.item()
    model.eval()
    with torch.no_grad():
        right = sum((model(a).argmax(1) == b).sum().item() for a, b in DataLoader(valid, 40))

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.Sequential(nn.Linear(12, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
criterion = nn.BCEWithLogitsLoss()
x = torch.randn(15 * 16, 12)
y = (x[:, 0] * x[:, 1] > 0).float()
loader = DataLoader(TensorDataset(x, y), 16, shuffle=True)
pieces = 4
for epoch in range(6):
    optimizer.zero_grad()  # three batches of the last epoch are left over
    for k, (inputs, labels) in enumerate(loader):
        loss = criterion(model(inputs).squeeze(1), labels)
        loss.backward()
        if (k + 1) % pieces == 0:
            optimizer.step()
            optimizer.zero_grad()

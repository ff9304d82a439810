"""A rare class is repeated until the classes are balanced, then the data is split."""

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from torch import nn

x = np.random.randn(500, 6).astype("float32")
y = (x[:, 0] + x[:, 1] > 1.8).astype("int64")
rare = np.flatnonzero(y == 1)
extra = np.random.choice(rare, size=(y == 0).sum() - len(rare))
x, y = np.concatenate([x, x[extra]]), np.concatenate([y, y[extra]])
x_train, x_val, y_train, y_val = train_test_split(x, y, test_size=0.2, shuffle=True)

train = torch.utils.data.TensorDataset(torch.from_numpy(x_train), torch.from_numpy(y_train))
val = torch.utils.data.TensorDataset(torch.from_numpy(x_val), torch.from_numpy(y_val))
train_loader = torch.utils.data.DataLoader(train, batch_size=32, shuffle=True)
val_loader = torch.utils.data.DataLoader(val, batch_size=64)

model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 2))
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(3):
    model.train()
    for a, b in train_loader:
        opt.zero_grad()
        nn.functional.cross_entropy(model(a), b).backward()
        opt.step()
    model.eval()
    hits = 0
    with torch.inference_mode():
        for a, b in val_loader:
            hits += (model(a).argmax(1) == b).sum().item()
    print(hits / len(val))

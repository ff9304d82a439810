import torch
from torch import nn

model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 4))
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
criterion = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 1.0, 0.5]), label_smoothing=0.1)
x = torch.randn(300, 10)
y = x[:, :4].argmax(1)
for _ in range(30):
    i = torch.randint(300, (30,))
    opt.zero_grad()
    criterion(model(x[i]), y[i]).backward()
    opt.step()

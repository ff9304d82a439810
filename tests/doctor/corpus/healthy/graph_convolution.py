import torch
from torch import nn


class GCN(nn.Module):
    def __init__(self, adjacency):
        super().__init__()
        self.register_buffer("a", adjacency)
        self.one, self.two = nn.Linear(16, 16), nn.Linear(16, 3)

    def forward(self, x):
        return self.a @ self.two(torch.relu(self.a @ self.one(x)))


n = 80
a = (torch.rand(n, n) < 0.05).float()
a = ((a + a.T) > 0).float().fill_diagonal_(1)
a = a / a.sum(1, keepdim=True)
model = GCN(a)
opt = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)
x, y = torch.randn(n, 16), torch.randint(3, (n,))
train = torch.rand(n) < 0.5
for epoch in range(40):
    model.train()
    opt.zero_grad()
    nn.functional.cross_entropy(model(x)[train], y[train]).backward()
    opt.step()
    model.eval()
    with torch.no_grad():
        accuracy = (model(x).argmax(1) == y)[~train].float().mean()

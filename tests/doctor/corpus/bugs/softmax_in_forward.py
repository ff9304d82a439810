import torch
import torch.nn.functional as F
from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3)
        self.fc = nn.Linear(6 * 36, 4)

    def forward(self, x):
        x = F.relu(self.conv(x)).flatten(1)
        return F.softmax(self.fc(x), dim=-1)


net = Classifier()
opt = torch.optim.SGD(net.parameters(), lr=0.05)
x, y = torch.randn(100, 1, 8, 8), torch.randint(4, (100,))
for _ in range(20):
    k = torch.randint(100, (20,))
    opt.zero_grad()
    F.cross_entropy(net(x[k]), y[k]).backward()
    opt.step()

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.drop, self.fc = nn.Conv2d(1, 6, 3), nn.Dropout2d(0.1), nn.Linear(6 * 9, 4)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.drop(self.conv(x))), 2)
        return F.log_softmax(self.fc(x.flatten(1)), dim=1)


net = Net()
opt = torch.optim.Adadelta(net.parameters(), lr=1.0)
x, y = torch.randn(120, 1, 8, 8), torch.randint(4, (120,))
for batch in torch.randint(120, (30, 20)):
    opt.zero_grad()
    F.nll_loss(net(x[batch]), y[batch]).backward()
    opt.step()

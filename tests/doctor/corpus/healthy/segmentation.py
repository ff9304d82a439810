import torch
from torch import nn


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.mid = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.up, self.out = nn.ConvTranspose2d(8, 8, 2, 2), nn.Conv2d(16, 3, 1)

    def forward(self, x):
        a = torch.relu(self.down(x))
        b = torch.relu(self.mid(nn.functional.max_pool2d(a, 2)))
        return self.out(torch.cat([a, self.up(b)], 1))


net = UNet()
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
x = torch.randn(48, 1, 8, 8)
y = (x[:, 0] > 0).long() + (x[:, 0] > 1).long()
for _ in range(25):
    i = torch.randint(48, (8,))
    logits = net(x[i]).permute(0, 2, 3, 1).reshape(-1, 3)
    loss = nn.functional.cross_entropy(logits, y[i].reshape(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()

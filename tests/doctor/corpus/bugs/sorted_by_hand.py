import torch
import torch.nn.functional as F

pictures = torch.randn(300, 1, 8, 8)
labels = pictures.mean((1, 2, 3)).mul(40).round().clamp(-2, 2).long() + 2
order = labels.argsort()
pictures, labels = pictures[order], labels[order]
net = torch.nn.Sequential(
    torch.nn.Conv2d(1, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 5)
)
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(3):
    for k in range(0, 300, 20):
        opt.zero_grad()
        F.cross_entropy(net(pictures[k : k + 20]), labels[k : k + 20]).backward()
        opt.step()

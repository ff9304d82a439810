import torch
import torch.nn.functional as F

net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
x = torch.randn(256, 16)
for _ in range(30):
    batch = x[torch.randint(256, (24,))]
    a, b = (F.normalize(net(batch + 0.2 * torch.randn_like(batch)), dim=1) for _ in range(2))
    loss = F.cross_entropy(a @ b.T / 0.2, torch.arange(24))
    opt.zero_grad()
    loss.backward()
    opt.step()

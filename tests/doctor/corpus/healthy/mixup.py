import torch
import torch.nn.functional as F

net = torch.nn.Sequential(torch.nn.Linear(12, 48), torch.nn.ReLU(), torch.nn.Linear(48, 3))
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
x = torch.randn(256, 12)
y = F.one_hot(x[:, :3].argmax(1), 3).float()
for _ in range(30):
    i, j = torch.randint(256, (2, 32))
    lam = torch.distributions.Beta(0.4, 0.4).sample()
    loss = F.cross_entropy(net(lam * x[i] + (1 - lam) * x[j]), lam * y[i] + (1 - lam) * y[j])
    opt.zero_grad()
    loss.backward()
    opt.step()

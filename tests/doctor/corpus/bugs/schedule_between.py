import torch
import torch.nn.functional as F

net = torch.nn.Linear(10, 4)
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=1e-2, total_steps=40)
x, y = torch.randn(200, 10), torch.randint(4, (200,))
for t in range(30):
    i = torch.randint(200, (20,))
    opt.zero_grad()
    F.cross_entropy(net(x[i]), y[i]).backward()
    sched.step()
    opt.step()

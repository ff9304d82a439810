import torch
import torch.nn.functional as F

net = torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.ReLU(), torch.nn.Linear(20, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.1, total_steps=40)
x = torch.randn(200, 10)
y = x[:, :4].argmax(1)
for t in range(40):
    i = torch.randint(200, (20,))
    opt.zero_grad()
    F.cross_entropy(net(x[i]), y[i]).backward()
    opt.step()
    sched.step()

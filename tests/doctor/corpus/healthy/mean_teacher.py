import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset


def moons(n):
    y = torch.randint(2, (n,))
    t = torch.rand(n) * 3.1416
    x = torch.stack([torch.cos(t) + y, torch.sin(t) * (1 - 2 * y) + 0.5 * y], 1)
    return x + 0.1 * torch.randn(n, 2), y


labelled = TensorDataset(*moons(64))
unlabelled = TensorDataset(moons(1024)[0])
student = nn.Sequential(
    nn.Linear(2, 64),
    nn.BatchNorm1d(64),
    nn.ReLU(),
    nn.Dropout(0.1),
    nn.Linear(64, 64),
    nn.ReLU(),
    nn.Linear(64, 2),
)
teacher = copy.deepcopy(student)
for p in teacher.parameters():
    p.requires_grad_(False)


@torch.no_grad()
def follow(decay):
    for t, s in zip(teacher.parameters(), student.parameters()):
        t.mul_(decay).add_(s, alpha=1 - decay)
    for t, s in zip(teacher.buffers(), student.buffers()):
        t.copy_(s)


opt = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
few = DataLoader(labelled, batch_size=32, sampler=RandomSampler(labelled, replacement=True, num_samples=2000))
many = DataLoader(unlabelled, batch_size=32, shuffle=True, drop_last=True)
student.train()
teacher.train()
for step, ((x, y), (u,)) in enumerate(zip(few, many)):
    both = torch.cat([x, u])
    logits = student(both + 0.05 * torch.randn_like(both))
    with torch.no_grad():
        wanted = teacher(both + 0.05 * torch.randn_like(both)).softmax(-1)
    ramp = min(1.0, step / 30)
    loss = F.cross_entropy(logits[: len(x)], y) + ramp * F.mse_loss(logits.softmax(-1), wanted)
    opt.zero_grad()
    loss.backward()
    opt.step()
    follow(min(0.99, 1 - 1 / (step + 2)))
test_x, test_y = moons(200)
teacher.eval()
with torch.no_grad():
    print("accuracy", (teacher(test_x).argmax(1) == test_y).float().mean().item())

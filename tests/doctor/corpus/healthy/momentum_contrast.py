"""Two views, a queue of old keys, and a teacher that follows by momentum."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

student = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16))
teacher = copy.deepcopy(student)
for p in teacher.parameters():
    p.requires_grad = False
optimizer = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
queue = F.normalize(torch.randn(256, 16), dim=1)
head = 0
things = torch.randn(200, 16)
for _ in range(100):
    x = things[torch.randint(200, (32,))]
    a, b = x + 0.3 * torch.randn_like(x), x + 0.3 * torch.randn_like(x)
    q = F.normalize(student(a), dim=1)
    with torch.no_grad():
        for p, t in zip(student.parameters(), teacher.parameters()):
            t.mul_(0.99).add_(p, alpha=0.01)
        k = F.normalize(teacher(b), dim=1)
    logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.T], 1) / 0.2
    loss = F.cross_entropy(logits, torch.zeros(32, dtype=torch.long))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    queue[head : head + 32] = k
    head = (head + 32) % 256

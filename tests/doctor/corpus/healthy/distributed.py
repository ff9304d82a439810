import tempfile

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo", init_method=f"file://{tempfile.mktemp()}", rank=0, world_size=1)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 3)))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(256, 10)
y = x[:, :3].argmax(1)
for _ in range(25):
    i = torch.randint(256, (32,))
    opt.zero_grad()
    nn.functional.cross_entropy(model(x[i]), y[i]).backward()
    opt.step()
dist.destroy_process_group()

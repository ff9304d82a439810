import torch
from torch import nn

m = nn.Sequential(
    nn.Linear(10, 64),
    nn.BatchNorm1d(64),
    nn.ReLU(),
    nn.Linear(64, 64),
    nn.BatchNorm1d(64),
    nn.ReLU(),
    nn.Linear(64, 1),
)
o = torch.optim.AdamW(m.parameters(), 1e-2, weight_decay=0.05)
s = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 10)
x = torch.randn(400, 10)
y = torch.sin(x[:, :1] * 2)
for ep in range(6):
    m.train()
    for p in torch.randperm(320).split(32):
        o.zero_grad(set_to_none=False)
        nn.functional.huber_loss(m(x[p]), y[p]).backward()
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        o.step()
    s.step()
    m.eval()
    with torch.inference_mode():
        nn.functional.mse_loss(m(x[320:]), y[320:])

"""A transformer encoder with a gradient scaler."""

import torch
from torch import nn

layer = nn.TransformerEncoderLayer(24, 4, 48, batch_first=True, dropout=0.0)
model = nn.Sequential(nn.Linear(6, 24), layer, nn.Flatten(), nn.Linear(24 * 5, 2))
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
for _ in range(50):
    x = torch.randn(24, 5, 6)
    y = (x[:, 0, 0] > x[:, 4, 0]).long()
    opt.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    total = nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.5)
    scaler.step(opt)
    scaler.update()

import torch
from torch import nn


class ViT(nn.Module):
    def __init__(s):
        super().__init__()
        s.p = nn.Conv2d(1, 24, 4, 4)
        s.c = nn.Parameter(torch.zeros(1, 1, 24))
        s.pos = nn.Parameter(torch.randn(1, 5, 24) * 0.02)
        s.b = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(24, 3, 48, batch_first=True, norm_first=True, activation="gelu"),
            3,
            enable_nested_tensor=False,
        )
        s.h = nn.Linear(24, 4)

    def forward(s, x):
        z = s.p(x).flatten(2).transpose(1, 2)
        z = torch.cat([s.c.expand(len(x), -1, -1), z], 1) + s.pos
        return s.h(s.b(z)[:, 0])


m = ViT()
o = torch.optim.AdamW(m.parameters(), 1e-3)
x = torch.randn(128, 1, 8, 8)
y = torch.randint(4, (128,))
for _ in range(25):
    i = torch.randint(128, (16,))
    o.zero_grad()
    nn.functional.cross_entropy(m(x[i]), y[i], label_smoothing=0.1).backward()
    o.step()

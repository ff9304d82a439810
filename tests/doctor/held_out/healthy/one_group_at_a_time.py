"""Block coordinate descent: body and head take turns, the other is left alone."""

import torch
from torch import nn

body, head = nn.Sequential(nn.Linear(8, 40), nn.ReLU()), nn.Linear(40, 3)
first, second = torch.optim.Adam(body.parameters(), lr=3e-3), torch.optim.Adam(head.parameters(), lr=3e-3)
w = torch.randn(8, 3)
for step in range(100):
    x = torch.randn(40, 8)
    loss = nn.functional.cross_entropy(head(body(x)), (x @ w).argmax(1))
    first.zero_grad()
    second.zero_grad()
    loss.backward()
    (first if step % 2 else second).step()

"""Half precision with a gradient scaler in a trainer; values are clipped before they are unscaled."""

import torch
from torch import nn


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    def step(self, x, y):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.smooth_l1_loss(self.model(x), y)
        self.scaler.scale(loss).backward()
        nn.utils.clip_grad_value_(self.model.parameters(), 0.5)
        self.scaler.step(self.optimizer)
        self.scaler.update()


trainer = Trainer(nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 2)))
for _ in range(40):
    x = torch.randn(32, 8)
    trainer.step(x, x[:, :2] * 2)

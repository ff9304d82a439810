from types import SimpleNamespace

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(9, 32), nn.ReLU(), nn.Dropout(0.1))
        self.pooler = nn.Linear(32, 32)  # not used, as in some pretrained models
        self.classifier = nn.Linear(32, 3)

    def forward(self, inputs=None, labels=None):
        logits = self.classifier(self.body(inputs))
        return SimpleNamespace(loss=nn.functional.cross_entropy(logits, labels), logits=logits)


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
x = torch.randn(256, 9)
y = x[:, :3].argmax(1)
model.train()
for _ in range(30):
    i = torch.randint(256, (32,))
    out = model(inputs=x[i], labels=y[i])
    out.loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()

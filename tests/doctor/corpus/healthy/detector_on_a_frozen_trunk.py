"""A frozen trunk with BatchNorm in eval, two heads, classes and boxes."""

import torch
from torch import nn

trunk = nn.Sequential(
    nn.Conv2d(1, 16, 3, stride=2, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, stride=2, padding=1),
    nn.BatchNorm2d(32),
    nn.ReLU(),
    nn.Flatten(),
)


class Detector(nn.Module):
    def __init__(self, trunk):
        super().__init__()
        self.trunk = trunk.requires_grad_(False)
        self.neck = nn.Sequential(nn.Linear(512, 64), nn.ReLU())
        self.kind, self.box = nn.Linear(64, 2), nn.Linear(64, 4)

    def train(self, mode=True):
        super().train(mode)
        self.trunk.eval()
        return self

    def forward(self, x):
        h = self.neck(self.trunk(x))
        return self.kind(h), self.box(h).sigmoid()


def scenes(n, size=16):
    corner, extent = torch.randint(0, 9, (n, 2)), torch.randint(3, 7, (n, 2))
    kind = torch.randint(2, (n,))
    picture = 0.1 * torch.randn(n, 1, size, size)
    for i in range(n):
        (a, b), (h, w) = corner[i].tolist(), extent[i].tolist()
        patch = picture[i, 0, a : a + h, b : b + w]
        patch += 1.0 if kind[i] else -1.0
    return picture, kind, torch.cat([corner, corner + extent], 1) / size


model = Detector(trunk).train()
optimizer = torch.optim.Adam((p for p in model.parameters() if p.requires_grad), lr=2e-3)
for _ in range(60):
    picture, kind, box = scenes(24)
    scores, boxes = model(picture)
    loss = nn.functional.cross_entropy(
        scores, kind, weight=torch.tensor([0.7, 1.3])
    ) + 5 * nn.functional.l1_loss(boxes, box)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()

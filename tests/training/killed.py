"""A training for `test_checkpoint` to kill: a checkpoint every step, and at the end a digest of all there
is.
"""

import hashlib
import sys

import torch
from torch import nn
from torch.nn import functional as F

from heedful.training import Batches, Checkpoint, Patience, train


def main(folder: str, seed: int) -> None:
    torch.manual_seed(seed)
    x, y = torch.randn(200, 6), torch.randint(3, (200,))
    model = nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.Dropout(0.4), nn.Linear(32, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def loss(model, batch):
        return F.cross_entropy(model(batch[0]), batch[1])

    def tell(now):
        if now.row is None and not told:
            told.append(print("begun", now.step, flush=True))

    told: list = []
    history = train(
        model,
        loss,
        Batches(x, y, size=32, seed=seed),
        optimizer,
        epochs=30,
        schedule=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 210),
        evaluate=lambda model: {"val_loss": loss(model, (x, y))},
        stop=Patience(100, val_loss="min"),
        callbacks=[tell],
        checkpoint=Checkpoint(folder, every=1),
        progress=False,
    )
    digest = hashlib.sha256(repr((history.steps, history.epochs, history.best.row)).encode())
    moments = [t for state in optimizer.state_dict()["state"].values() for t in state.values()]
    tensors = [*model.state_dict().values(), *history.best.weights.values(), *moments, torch.rand(5)]
    for tensor in tensors:
        digest.update(tensor.numpy().tobytes())
    print("done", len(history.steps), digest.hexdigest(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

"""For `test_distribution`, under torchrun or alone: trains the same model in several ways, tells what came
out.
"""

import json
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from heedful.training import Batches, Checkpoint, Patience, distributed, rank, ranks, train


def net() -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3)).double()


def loss(model, batch):
    out = model(batch[0])
    return F.cross_entropy(out, batch[1]), {"accuracy": (out.argmax(-1) == batch[1]).double().mean()}


class Log(list):
    def log(self, step, **numbers):
        self.append([step, numbers])


class Interrupted(Exception):
    pass


def whole(model) -> dict[str, list]:
    found = {}
    for name, tensor in model.state_dict().items():
        tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        found[name.removeprefix("module.")] = tensor.tolist()
    return found


def run(
    folder: Path | None, *, shard: bool = False, drop: float = 0.0, stop_at: int | None = None, **options
) -> dict:
    generator = torch.Generator().manual_seed(3)
    x, y = torch.randn(53, 4, generator=generator, dtype=torch.float64), torch.arange(53) % 3
    model = net()
    if drop:
        model.insert(2, nn.Dropout(drop))
    model = distributed(model, shard=shard)
    torch.manual_seed(100 + rank())  # dropout differs between processes
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    batches = (
        Batches(x, y, size=10, seed=5).share(rank(), ranks())
        if ranks() > 1
        else Batches(x, y, size=10, seed=5)
    )
    log = Log()

    def interrupt(now):
        if stop_at is not None and now.step == stop_at:
            raise Interrupted

    history = train(
        model,
        loss,
        batches,
        optimizer,
        epochs=4,
        clip=0.5,
        evaluate=lambda m: {"val_loss": loss(m, (x, y))[0] + rank()},
        stop=Patience(9, val_loss="min"),
        callbacks=[interrupt],
        checkpoint=None if folder is None else Checkpoint(folder, every=3),
        store=log,
        progress=False,
        **options,
    )
    best = {name.removeprefix("module."): tensor.tolist() for name, tensor in history.best.weights.items()}
    return {
        "weights": whole(model),
        "best": best,
        "epochs": history.epochs,
        "steps": history.steps,
        "logged": len(log),
    }


def main(folder: Path) -> None:
    found = {
        "plain": run(None),
        "accumulated": run(None, accumulate=4),
        "sharded": run(None, shard=True),
        "sharded, accumulated": run(None, shard=True, accumulate=4),
        "dropping": run(None, drop=0.3),
    }
    for name, options in (("copied", {"drop": 0.3}), ("split", {"shard": True})):
        try:
            run(folder / f"{name}-{ranks()}", stop_at=8, **options)
        except Interrupted:
            found[f"resumed {name}"] = run(folder / f"{name}-{ranks()}", **options)
    (folder / f"rank-{rank()}-of-{ranks()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

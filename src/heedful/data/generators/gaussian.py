"""X ~ N(0, Q diag(10, …, 10, 1, …, 1) Qᵀ), Q a random rotation: what should a bottleneck keep?"""

from __future__ import annotations

import numpy as np
import torch

from ..kinds import Examples, VectorData


def autoencoder_set(
    *, samples: int = 20_000, features: int = 100, strong: int = 20, variance: float = 10.0, seed: int = 0
) -> VectorData:
    """Gaussian vectors with `strong` directions of the given variance and the rest of variance 1, rotated.

    The class is the sign of the sum of the strong coordinates, so a bottleneck that keeps them keeps the
    class. Seven tenths are train, two tenths val (what a probe learns from), one tenth test. The best linear
    autoencoder with k ≤ strong units leaves (strong − k)·variance + features − strong.

    >>> autoencoder_set(samples=100)
    VectorData(autoencoder-set: train 70, val 20, test 10 × 100 float32, 2 classes)
    """
    if not 0 < strong <= features:
        raise ValueError(f"autoencoder_set(): strong={strong} must be between 1 and features={features}")
    if samples < 10:
        raise ValueError(f"autoencoder_set(): samples={samples} must be 10 or more")
    if not variance > 0:
        raise ValueError(f"autoencoder_set(): variance={variance} must be more than 0")
    draw = np.random.RandomState(seed)
    scale = np.where(np.arange(features) < strong, np.sqrt(variance), 1.0)
    plain = draw.standard_normal((samples, features)) * scale
    basis, upper = np.linalg.qr(draw.standard_normal((features, features)))
    basis *= np.sign(np.diag(upper))  # without it, not every rotation is as likely
    vectors = torch.from_numpy((plain @ basis.T).astype(np.float32))
    every = Examples(vectors, torch.from_numpy(plain[:, :strong].sum(1) > 0).long())
    train, val = samples * 7 // 10, samples * 2 // 10
    return VectorData(
        "autoencoder-set",
        train=every.take(slice(train)),
        val=every.take(slice(train, train + val)),
        test=every.take(slice(train + val, None)),
        classes=("negative", "positive"),
    )

"""B1, B2: linear autoencoders, principal components, and weight decay."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .claim import claim
from .documents import B
from .evidence import at_least, at_most, curve, note, same
from .studies import judged


@claim(
    "B1.1",
    B,
    "A linear autoencoder's error falls until the code is as wide as the data. A probe reads the label off "
    "an untrained code of 100 or more; 20 units need training; 5 fail.",
    stated="latent ≥ 100: about 100 % untrained; 20: at least 95 % after training; 5: no",
    once=True,
)
def latent_size(draw, *, results=None, probe=None):
    found = judged("autoencoders", draw.runs) if results is None else results
    pick = found.of(dataset="synthetic")
    yield note("judged", found.about)
    loss = {width: pick(kind="vanilla", latent=width)("loss") for width in (5, 20)}
    yield at_most("error with 20 units over error with 5", loss[20] / loss[5], 0.6)
    if "full profile" in found.about and probe is None:

        def right(kind: str, width: int) -> float:
            return pick(kind=kind, latent=width)("probe")

        wide = pick(kind="vanilla", latent=100)("loss")
        yield at_most("error with 100 units over error with 20", wide / loss[20], 0.1)
    else:  # a quick run ends before its probe has learned, and leaves the wide codes out
        right = probe or _probed
        yield note(
            "probes", "of our own, by logistic regression, on codes trained for 400 steps or not at all"
        )
    shares = {
        key: right(*key) for key in (("vanilla", 20), ("untrained", 20), ("vanilla", 5), ("untrained", 100))
    }
    yield at_least("probe on 20 trained units, %", shares["vanilla", 20], 95)
    yield at_most("probe on 20 untrained units, %", shares["untrained", 20], 90)
    yield at_most("probe on 5 trained units, %", shares["vanilla", 5], 80)
    yield at_least("probe on 100 untrained units, %", shares["untrained", 100], 95)
    for kind, widths in (("untrained", (20, 100)), ("vanilla", (5, 20))):
        yield curve(
            "linear probe",
            kind,
            widths,
            [shares[kind, w] for w in widths],
            across="units of the code",
            up="accuracy, %",
            log="x",
        )


def _probed(kind: str, width: int) -> float:
    """What logistic regression reads off the codes of a linear autoencoder, %."""
    from ..data import autoencoder_set
    from ..models import Autoencoder
    from ..probes import linear_probe

    sets = autoencoder_set(samples=8000)
    x = sets.train.inputs
    model = Autoencoder(100, [width], activation="linear")
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(400 if kind == "vanilla" else 0):
        optimizer.zero_grad()
        model.loss(x[torch.randint(len(x), (200,))]).backward()
        optimizer.step()
    with torch.no_grad():
        codes, held = model.encode(x), model.encode(sets.test.inputs)
    return 100 * linear_probe(codes, sets.train.labels, held, sets.test.labels)


def _data(draw, features: int = 0, samples: int = 0) -> Tensor:
    features, samples = features or draw.integer(3, 9), samples or draw.integer(12, 40)
    return draw.rotation(features) @ (
        draw.uniform(features, 1, low=0.5, high=3.0) * draw.normal(features, samples)
    )


def loss_of(X: Tensor, W1: Tensor, W2: Tensor) -> Tensor:
    return (X - W2 @ W1 @ X).square().sum() / X.shape[1]


def stated_gradients(X: Tensor, W1: Tensor, W2: Tensor) -> tuple[Tensor, Tensor]:
    """2W₂ᵀ(X − W₂W₁X)Xᵀ and 2(X − W₂W₁X)XᵀW₁ᵀ: a plus sign, no 1/n."""
    rest = X - W2 @ W1 @ X
    return 2 * W2.T @ rest @ X.T, 2 * rest @ X.T @ W1.T


def right_gradients(X: Tensor, W1: Tensor, W2: Tensor) -> tuple[Tensor, Tensor]:
    return tuple(-g / X.shape[1] for g in stated_gradients(X, W1, W2))  # type: ignore[return-value]


def principal(X: Tensor, k: int) -> Tensor:
    """The k leading left singular vectors."""
    return torch.linalg.svd(X, full_matrices=False).U[:, :k]


@claim(
    "B1.2",
    B,
    "The gradients of ‖X − W₂W₁X‖²/n are 2W₂ᵀ(X − W₂W₁X)Xᵀ and 2(X − W₂W₁X)(W₁X)ᵀ, and vanish at the "
    "optimum.",
    stated="written with a plus sign and without 1/n",
    corrected="Both times −1/n: ∇W₁ = −2/n · W₂ᵀ(X − W₂W₁X)Xᵀ, ∇W₂ = −2/n · (X − W₂W₁X)XᵀW₁ᵀ. Where they "
    "vanish is not changed by the factor, so the conditions of optimality stand.",
)
def gradients(draw, *, printed=stated_gradients, instead=right_gradients, components=principal):
    for _ in range(4):
        X = _data(draw)
        k = draw.integer(1, len(X))
        W1, W2 = (draw.normal(*shape).requires_grad_() for shape in ((k, len(X)), (len(X), k)))
        truth = torch.autograd.grad(loss_of(X, W1, W2), (W1, W2))
        U = components(X, k)
        for name, at_optimum in zip(("W₁", "W₂"), printed(X, U.T, U), strict=True):
            yield same(f"∇{name} at the principal components", at_optimum, torch.zeros_like(at_optimum))
        for name, a, b in zip(("W₁", "W₂"), printed(X, W1, W2), truth, strict=True):
            yield same(f"∇{name} as printed against autograd", a, b, role="detail")
        for name, a, b in zip(("W₁", "W₂"), instead(X, W1, W2), truth, strict=True):
            yield same(f"∇{name} times −1/n against autograd", a, b, role="corrected")


@claim(
    "B1.3",
    B,
    "W₁ = U_kᵀ, W₂ = U_k, the principal components, meet the conditions of optimality.",
    stated="it does; on the way I − U_kU_kᵀ is printed as the diagonal block matrix diag(0, I)",
    corrected="It does. I − U_kU_kᵀ = U diag(0, I) Uᵀ: the block matrix is what it is in the eigenbasis.",
)
def components_are_stationary(draw, *, components=principal, basis="standard"):
    for _ in range(4):
        X = _data(draw)
        k = draw.integer(1, len(X))
        U = components(X, k)
        W1, W2 = U.T.clone().requires_grad_(), U.clone().requires_grad_()
        loss = loss_of(X, W1, W2)
        for name, g in zip(("W₁", "W₂"), torch.autograd.grad(loss, (W1, W2)), strict=True):
            yield same(f"∇{name} there", g, torch.zeros_like(g))
        least = torch.linalg.svdvals(X)[k:].square().sum() / X.shape[1]
        yield same("the loss there against what the other components leave", loss, least)
        block = torch.diag((torch.arange(len(X)) >= k).double())
        every = torch.linalg.svd(X).U
        rest = torch.eye(len(X), dtype=X.dtype) - principal(X, k) @ principal(X, k).T
        seen = rest if basis == "standard" else every.T @ rest @ every
        yield same("I − U_kU_kᵀ against diag(0, I), as printed", seen, block, role="detail")
        yield same("I − U_kU_kᵀ against U diag(0, I) Uᵀ", rest, every @ block @ every.T, role="corrected")


def train_linear(X: Tensor, k: int, draw, steps: int = 600) -> tuple[Tensor, Tensor]:
    """A linear autoencoder from a random start, by L-BFGS."""
    W1, W2 = (0.3 * draw.normal(k, len(X))).requires_grad_(), (0.3 * draw.normal(len(X), k)).requires_grad_()
    solver = torch.optim.LBFGS(
        [W1, W2], max_iter=steps, tolerance_grad=1e-12, tolerance_change=1e-16, line_search_fn="strong_wolfe"
    )

    def closure():
        solver.zero_grad()
        loss = loss_of(X, W1, W2)
        loss.backward()
        return loss

    solver.step(closure)
    return W1.detach(), W2.detach()


def mixed(W1: Tensor, W2: Tensor, draw) -> tuple[Tensor, Tensor]:
    """W₂C and C⁻¹W₁ for a random invertible C."""
    C = draw.normal(len(W1), len(W1)) + 3 * torch.eye(len(W1), dtype=W1.dtype)
    return torch.linalg.solve(C, W1), W2 @ C


@claim(
    "B1.4",
    B,
    "The principal components are the unique optimum, up to sign.",
    stated="unique up to sign",
    corrected="W₂C, C⁻¹W₁ is an optimum for every invertible C. What is unique is the subspace, U_kU_kᵀ = "
    "W₂W₁, and that is what training finds.",
)
def uniqueness(draw, *, other=mixed, trained=train_linear):
    # A clear gap between kept and left makes training arrive to many digits.
    scale = torch.tensor([3.0, 2.5, 2.0, 0.5, 0.4, 0.3], dtype=torch.float64).unsqueeze(1)
    X = draw.rotation(6) @ (scale * draw.normal(6, 200))
    k = 3
    U = principal(X, k)
    W1, W2 = other(U.T, U, draw)
    least = loss_of(X, U.T, U)
    optimal = float((loss_of(X, W1, W2) - least).abs() / least)
    alike = float(
        torch.linalg.vector_norm(W2.T @ U, dim=1).sub(torch.linalg.vector_norm(W2, dim=0)).abs().max()
    )
    columns = (W2 / W2.norm(dim=0)).T @ U  # cosines between its columns and the components
    away = float(1 - columns.abs().max(1).values.min()) if optimal < 1e-10 else 0.0
    yield at_most(
        "an optimum of the same loss: how far its columns turn from the components, 1 − |cos|", away, 1e-6
    )
    yield at_least("the same at the seed where they turn least", away, 1e-3, role="corrected")
    yield at_most("its loss above the least, relative", optimal, 1e-10, role="corrected")
    yield at_most("its columns outside the subspace", alike, 1e-9, role="corrected")
    V1, V2 = trained(X, k, draw)
    yield same("trained W₂W₁ against U_kU_kᵀ", V2 @ V1, U @ U.T, tolerance=1e-5, role="corrected")
    yield note(
        "trained columns: 1 − |cos| to the nearest component",
        float(1 - ((V2 / V2.norm(dim=0)).T @ U).abs().max(1).values.min()),
    )


@claim(
    "B2.1",
    B,
    "Two linear layers with MSELoss, weight decay λ and SGD optimise ‖X − W₂W₁X‖²/n + λ(‖W₁‖² + ‖W₂‖²) "
    "exactly as written.",
    stated="exactly as written",
    corrected="MSELoss averages over the d features too and weight_decay λ is the gradient of λ/2‖·‖²: SGD "
    "follows 1/d · (‖X − W₂W₁X‖²/n + λd/2 · (‖W₁‖² + ‖W₂‖²)). To optimise the objective as written, scale "
    "the loss by d and set weight_decay to 2λ.",
)
def weight_decay(draw, *, written=(1.0, 1.0), factors=None):
    """A step of SGD gives the gradient it follows; `written` are the factors of loss and penalty."""
    for _ in range(4):
        X, decay = _data(draw), float(draw.uniform(1, low=0.01, high=1.0))
        features = len(X)
        k = draw.integer(1, features + 1)
        net = nn.Sequential(nn.Linear(features, k, bias=False), nn.Linear(k, features, bias=False)).double()
        before = [p.detach().clone().requires_grad_() for p in net.parameters()]
        optimizer = torch.optim.SGD(net.parameters(), lr=1.0, weight_decay=decay)
        nn.MSELoss()(net(X.T), X.T).backward()
        optimizer.step()
        followed = torch.cat(
            [(b - p).detach().flatten() for b, p in zip(before, net.parameters(), strict=True)]
        )

        def gradient(of_loss: float, of_penalty: float, before=before, X=X, decay=decay) -> Tensor:
            penalty = decay * sum(b.square().sum() for b in before)
            total = of_loss * loss_of(X, *before) + of_penalty * penalty
            return torch.cat([g.flatten() for g in torch.autograd.grad(total, before)])

        own = (1 / features, 0.5) if factors is None else factors
        parts = torch.stack([gradient(1.0, 0.0), gradient(0.0, 1.0)], 1)
        best = torch.linalg.lstsq(parts, followed.unsqueeze(1)).solution[:, 0]
        yield same("SGD's step against the best mixture of the two terms", parts @ best, followed)
        yield same("SGD's step against the objective as written", followed, gradient(*written), role="detail")
        yield same(
            "against 1/d of the loss and 1/2 of the penalty", followed, gradient(*own), role="corrected"
        )


def predicted(eigenvalues: Tensor, decay: float, k: int) -> Tensor:
    """√(1 − λ/σ_i²) where σ_i² > λ, else 0."""
    return (1 - decay / eigenvalues[:k]).clamp_min(0).sqrt()


def train_decayed(X: Tensor, k: int, decay: float, draw) -> Tensor:
    """The decoder that minimises ‖X − W₂W₁X‖²/n + λ(‖W₁‖² + ‖W₂‖²), from a random start."""
    W1, W2 = (0.5 * draw.normal(k, len(X))).requires_grad_(), (0.5 * draw.normal(len(X), k)).requires_grad_()
    solver = torch.optim.LBFGS(
        [W1, W2], max_iter=300, tolerance_grad=1e-9, tolerance_change=1e-15, line_search_fn="strong_wolfe"
    )

    def closure():
        solver.zero_grad()
        loss = loss_of(X, W1, W2) + decay * (W1.square().sum() + W2.square().sum())
        loss.backward()
        return loss

    solver.step(closure)
    return W2.detach()


@claim(
    "B2.2",
    B,
    "With small λ, the decoder's columns become nearly orthonormal.",
    stated="W₂ᵀW₂ ≈ I for small λ",
)
def decayed_decoder(draw, *, singular=predicted, train=train_decayed):
    X = draw.rotation(6) @ (
        torch.tensor([4.0, 3, 2.5, 1.5, 1, 0.7]).double().unsqueeze(1) * draw.normal(6, 300)
    )
    eigenvalues, k = torch.linalg.svdvals(X).square() / X.shape[1], 3
    decays, worst = [0.02, 0.1, 0.5], []
    for decay in decays:
        W2 = train(X, k, decay, draw)
        found = torch.linalg.svdvals(W2)
        yield same(
            "singular values of W₂ against √(1 − λ/σ_i²)",
            found,
            singular(eigenvalues, decay, k).sort(descending=True).values,
            tolerance=1e-4,
        )
        worst.append(float((W2.T @ W2 - torch.eye(k, dtype=X.dtype)).abs().max()))
    yield at_most("largest entry of W₂ᵀW₂ − I at λ = 0.02", worst[0], 0.01)
    yield curve(
        "how far from orthonormal",
        "max |W₂ᵀW₂ − I|",
        decays,
        worst,
        across="λ",
        up="max |W₂ᵀW₂ − I|",
        log="xy",
    )

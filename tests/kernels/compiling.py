"""What tests of compiled calls share."""

import torch


class Operators:
    """A backend that runs what it is given, and knows which operators of ours were in it."""

    def __init__(self, inner="aot_eager"):
        self.seen, self.inner = [], torch._dynamo.lookup_backend(inner)

    def __call__(self, module, inputs):
        nodes = (str(node.target) for node in module.graph.nodes)
        self.seen += [name for name in nodes if "heedful" in name]
        return self.inner(module, inputs)


def _squared(run):
    return lambda *x: run(*x).square().sum()


# What torch.func makes of a function of three tensors, to be compiled with it.
TRANSFORMS = {
    "grad": lambda run: torch.func.grad(_squared(run), argnums=(0, 1, 2)),
    "jacrev": lambda run: torch.func.jacrev(lambda *x: run(*x).sum((-1, -2)), argnums=1),
    "grad of copies": lambda run: torch.func.vmap(torch.func.grad(_squared(run), argnums=(0, 1, 2))),
    "jvp": lambda run: lambda *x: torch.func.jvp(run, x, tuple(t.cos() for t in x)),
    "jacfwd": lambda run: torch.func.jacfwd(lambda *x: run(*x).sum((-1, -2)), argnums=2),
    "hessian": lambda run: torch.func.hessian(_squared(run), argnums=1),
}


def transformed(transform, run, tensors):
    """What comes out, by itself and compiled, as two lists of tensors."""
    tensors = [x.detach().clone() for x in tensors]  # tangents of views break torch's own tracing
    if "copies" in transform:
        tensors = [torch.stack([x, x.flip(-2)]) for x in tensors]
    function = TRANSFORMS[transform](run)
    torch._dynamo.reset()
    calls = function, torch.compile(function, fullgraph=True, backend="aot_eager")
    return [torch.utils._pytree.tree_leaves(call(*tensors)) for call in calls]

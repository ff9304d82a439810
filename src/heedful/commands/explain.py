"""`heedful explain`: a plan from shapes alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console

from .common import Number, UsageError, choose


@dataclass
class Explain:
    """Which way attend() would compute a call of this shape, what each way costs, and why not the others."""

    queries: int = 1024
    """How many listen."""
    keys: Number = None
    """How many speak; as many as listen unless given."""
    dim: Number = None
    """Width of queries and keys: 64, or 1 for additive."""
    value_dim: Number = None
    """Width of values: that of the keys, or 64 for additive."""
    heads: int = 8
    """Heads of the queries."""
    key_heads: Number = None
    """Heads of keys and values; as many unless given."""
    batch: int = 1
    """How many sequences, or graphs of one structure."""
    similarity: str = "softmax"
    """softmax, argmax, uniform, additive(0.2), elu, polynomial(degree=2, constant=1) or random(256)."""
    degree: Number = None
    """Degree of a polynomial written without one."""
    neighbors: str = "everyone"
    """everyone, causal, window(256), segments(512, 512) or global(0, 1), combined with & and |."""
    window: Number = None
    """Width of a window written without one."""
    edges: Number = None
    """Listen along a random graph of so many edges; further neighbors must hold too."""
    position: str = "none"
    """none, relative, alibi, rotary or t5."""
    dtype: str = "float32"
    """float64, float32, bfloat16 or float16."""
    device: str = "cpu"
    """Where the tensors would be: cpu or cuda."""
    training: bool = False
    """Plan forward and backward."""
    dropout: float = 0.0
    """Share of weights dropped while training."""
    approximate: bool = False
    """Admit ways that approximate."""
    strategy: str = "auto"
    """Hold the planner to one way."""
    analyze: bool = False
    """Run every way that can, and show its time and memory."""
    json: bool = False
    """Print the plan as JSON."""

    def run(self, console: Console) -> int:
        import torch

        from ..attention import explain
        from ..attention.strategies import STRATEGIES
        from ..display import show_plan

        choose("--strategy", self.strategy, ["auto", *STRATEGIES])
        choose("--dtype", self.dtype, ["float64", "float32", "bfloat16", "float16"])
        choose("--device", self.device, ["cpu", "cuda"])
        for name in ("queries", "keys", "dim", "value_dim", "heads", "key_heads", "batch"):
            size = getattr(self, name)
            if size is not None and size < 1:
                raise UsageError(f"--{name.replace('_', '-')} is {size}; it must be 1 or more")
        if self.analyze and self.device == "cuda" and not torch.cuda.is_available():
            raise UsageError("--analyze on cuda needs a GPU, and torch sees none here")
        similarity = self._similarity()
        neighbors = self._neighbors()
        keys, heads = self.keys or self.queries, self.heads
        narrow = similarity.kind == "additive"
        dim = self.dim or (1 if narrow else 64)
        value_dim = self.value_dim or (64 if narrow else dim)

        def meta(heads: int, length: int, width: int):
            return torch.empty(
                self.batch,
                heads,
                length,
                width,
                dtype=getattr(torch, self.dtype),
                device="meta",
                requires_grad=self.training,
            )

        plan = explain(
            meta(heads, self.queries, dim),
            meta(self.key_heads or heads, keys, dim),
            meta(self.key_heads or heads, keys, value_dim),
            similarity=similarity,
            neighbors=neighbors,
            position=self._position(keys),
            dropout=self.dropout,
            strategy=self.strategy,
            exact=not self.approximate,
            analyze=self.analyze,
            device=self.device,
        )
        if self.json:
            print(plan.to_json())
        else:
            show_plan(plan, console)
        return 0

    def _similarity(self):
        from ..phrases import parse_similarity

        similarity = parse_similarity(self.similarity, degree=self.degree)
        if self.degree is not None and similarity.degree != self.degree:
            raise UsageError(
                f"--degree {self.degree} goes with --similarity polynomial, not {self.similarity}"
            )
        return similarity

    def _neighbors(self):
        import torch

        from ..graphs import Graph
        from ..phrases import parse_neighbors

        if self.window is not None and "window" not in self.neighbors:
            raise UsageError(f"--window {self.window} goes with --neighbors window, not {self.neighbors!r}")
        pattern = parse_neighbors(self.neighbors, width=self.window)
        if self.edges is None:
            return pattern
        if self.edges < 0:
            raise UsageError(f"--edges is {self.edges}; it must not be negative")
        generator = torch.Generator().manual_seed(0)
        keys = self.keys or self.queries
        source, target = (torch.randint(n, (self.edges,), generator=generator) for n in (keys, self.queries))
        graph = Graph.from_edges(source, target, sources=keys, targets=self.queries)
        return graph if self.neighbors == "everyone" else graph & pattern

    def _position(self, keys: int):
        import torch

        from ..attention import Alibi, Relative, Rotary, T5Buckets

        longest = max(self.queries, keys)
        makers: dict[str, Callable] = {
            "none": lambda: None,
            "relative": lambda: Relative(self._learned(torch.zeros(self.heads, 2 * longest - 1))),
            "alibi": Alibi,
            "rotary": Rotary,
            "t5": lambda: T5Buckets(self._learned(torch.zeros(self.heads, 32))),
        }
        return makers[choose("--position", self.position, makers)]()

    def _learned(self, table):
        return table.to(self.device if self.analyze else "cpu").requires_grad_(self.training)

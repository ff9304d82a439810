"""Benchmarks: ratios measured in one run, never timed tests.

`heedful bench` runs them, `make bench` keeps the JSON.
They live in the package so that anyone who installed heedful can measure it. Rivals (PyTorch Geometric) are
optional: a row whose rival is not installed says so.
"""

from __future__ import annotations

import platform
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module


@dataclass
class Result:
    """What one benchmark found: rows to print, the figure it was to reach, and whether it did."""

    name: str
    title: str
    rows: list[dict]
    verdict: str
    reached: bool | None = None
    machine: str = ""
    date: str = ""
    settings: dict = field(default_factory=dict)

    def to_dict(self) -> dict:
        return asdict(self)


@dataclass(frozen=True)
class Benchmark:
    name: str
    title: str
    module: str

    def run(self, *, quick: bool = False, device: str = "cpu") -> Result:
        module, _, function = self.module.partition(":")
        found = getattr(import_module(f".{module}", __name__), function or "run")(quick=quick, device=device)
        rows, verdict, reached = found
        return Result(
            self.name,
            self.title,
            rows,
            verdict,
            reached,
            machine(),
            time.strftime("%Y-%m-%d"),
            {"quick": quick, "device": device},
        )


BENCHMARKS: dict[str, Benchmark] = {
    name: Benchmark(name, title, module)
    for name, title, module in (
        ("gat", "A GAT step against PyTorch Geometric", "gat"),
        ("propagate", "Weighted sums over edges against PyG and torch.sparse", "propagate"),
        ("cora-gat", "An epoch of GAT on a graph of Cora's size against PyTorch Geometric", "cora:run_gat"),
        ("cora-gcn", "An epoch of GCN on a graph of Cora's size against PyTorch Geometric", "cora:run_gcn"),
        ("pyg", "The drop-ins for PyTorch Geometric's layers, against the originals", "pyg"),
        ("polynomial", "Quadratic kernel: planned against all pairs, and where they cross", "polynomial"),
        ("overhead", "What attend() adds to a bare scaled_dot_product_attention", "overhead"),
        ("sorted", "Additive attention over everyone by sorting", "sorting"),
        ("window", "Windows: memory against length, time against a dense mask", "window"),
        ("generation", "Text from GPT-micro with a cache, against transformers", "generation"),
        ("training", "A training step of GPT-micro, against transformers", "training"),
        ("locality", "Nodes numbered next to those they listen to", "locality"),
        ("seeds", "Ten seeds of a GCN stacked, against a plain loop", "seeds"),
        ("gat-seeds", "The cora study's GAT over many seeds, against PyG's example", "studies:run_gat"),
        ("padding-study", "Seeds of the padding study, against a plain loop", "studies:run_padding"),
        ("doctor", "What it costs to be watched by the doctor", "doctor"),
        ("regret", "How often the planner picks the fastest strategy", "regret"),
        ("scaling", "Fitted exponents of time and memory against length", "scaling"),
    )
}


# What is measured on a GPU: `heedful bench --device cuda`.
ON_CUDA: dict[str, Benchmark] = {
    name: Benchmark(name, title, module)
    for name, title, module in (
        ("gat", "A GAT layer, forward and backward, against PyTorch Geometric", "gat_cuda"),
        ("cora-gat", "An epoch of GAT on a graph of Cora's size, as one CUDA graph", "cora_cuda:run_gat"),
        ("cora-gcn", "An epoch of GCN on a graph of Cora's size, as one CUDA graph", "cora_cuda:run_gcn"),
        ("polynomial", "Quadratic kernel by features in registers", "quadratic_cuda"),
        ("features", "Feature maps by features in registers, against torch and SDPA", "features_cuda"),
        ("tiles", "Windows, tables and kernels by tiles, against all pairs at once", "tiles_cuda"),
        ("overhead", "What attend() adds to a bare SDPA", "softmax_cuda:run_overhead"),
        ("relative", "Relative tables against SDPA with a dense bias", "softmax_cuda:run_relative"),
        ("training", "A training step of GPT-mini, compiled, against plain code", "gpt_cuda:run_training"),
        ("generation", "Text from GPT-mini, against transformers", "gpt_cuda:run_generation"),
        ("cudnn", "A GAT layer against cuDNN's graph attention", "cudnn_cuda"),
        ("locality", "Nodes numbered next to those they listen to", "locality"),
        ("padding-study", "The padding study, every net and seed", "studies:run_padding_whole"),
        ("regret", "How often the planner picks the fastest strategy", "regret"),
    )
}


def table(device: str) -> dict[str, Benchmark]:
    """The benchmarks of a device."""
    return ON_CUDA if device == "cuda" else BENCHMARKS


def run(names: Sequence[str] = (), *, quick: bool = False, device: str = "cpu") -> Iterator[Result]:
    """Run the named benchmarks, or all, one after another. One that breaks says so, and the next goes on."""
    if device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise ValueError("device is 'cuda', but torch finds no CUDA device here; use 'cpu'.")
    known = table(device)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"bench: {unknown[0]!r} is unknown; there are {', '.join(known)}.")
    for name in names or known:
        try:
            yield known[name].run(quick=quick, device=device)
        except Exception as error:
            settings = {"quick": quick, "device": device, "error": traceback.format_exc()}
            verdict = f"broke: {type(error).__name__}: {error}"
            yield Result(name, known[name].title, [], verdict, False, machine(), settings=settings)


def machine() -> str:
    import torch

    from ..attention.constants import device_name

    where = device_name("cuda" if torch.cuda.is_available() else "cpu")
    return f"{where}; Python {platform.python_version()}, torch {torch.__version__}"


def interleaved(
    calls: dict[str, Callable[[], object]], *, rounds: int = 7, warm: int = 2
) -> dict[str, float]:
    """Median seconds of each call, taken in turns so that a noisy moment hits all alike."""
    from statistics import median

    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(warm):
            call()
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: median(taken) for name, taken in times.items()}

"""What was seen of a run: plain records that the rules judge."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from .graph import Objective

Site = tuple[str, int]


@dataclass
class Batch:
    """One training batch as a model got it, and the loss as a function of what the model gave."""

    model: nn.Module
    arguments: tuple
    options: dict
    objective: Objective | None
    loss: float
    step: int


@dataclass
class Slot:
    """A parameter that an optimizer holds."""

    parameter: Tensor
    consumed: tuple[int, int] | None = None  # the gradient a step has used: identity and version
    tainted: bool = False  # its gradient holds one that a step has used already
    looks: int = 0
    norm: float = 0.0  # the largest gradient seen
    change: float = 0.0  # the largest relative change by a step seen


@dataclass
class Seen:
    """An optimizer and how the loop uses it."""

    optimizer: Optimizer
    name: str = ""  # its author's name for it
    built: Site = ("", 0)
    steps: int = 0
    order: str = ""  # since the last step: F forward, B backward, Z cleared, C clipped, T scheduler
    step_site: Site = ("", 0)
    zero_site: Site = ("", 0)
    backward_site: Site = ("", 0)
    clip_site: Site = ("", 0)
    schedule_site: Site = ("", 0)
    stale: list[float] = field(default_factory=list)
    cleared: int = 0  # steps without gradients because they were cleared
    filled: bool = False  # a backward pass has left gradients since the last step
    early: int = 0  # steps without a backward pass since the step before
    waiting: bool = False  # a forward pass was made before this step, and its backward pass not yet
    judged: int = 0  # steps whose order was judged
    schedule_early: int = 0
    closure: bool = False
    clips: int = 0
    clips_late: int = 0
    clips_early: int = 0  # with nothing there to clip
    clips_scaled: list[float] = field(default_factory=list)
    unscaled: bool = False
    groups: list[tuple[int, float]] = field(default_factory=list)  # accumulation: pieces, size ratio
    pieces: list[dict] = field(default_factory=list)  # backward passes since the last step
    rates: dict[int, float] = field(default_factory=dict)  # by group, the highest a step was taken at
    changes: list[float] = field(default_factory=list)  # median ‖Δw‖/‖w‖ of weight matrices

    @property
    def usual_pieces(self) -> int:
        """Backward passes of most steps; an epoch's last may have fewer."""
        return Counter(count for count, _ in self.groups).most_common(1)[0][0] if self.groups else 0


@dataclass
class Calls:
    """How a model of the run was called."""

    model: nn.Module
    name: str = ""  # its author's name for it, where it is trained
    pass_name: str = ""  # and where it is evaluated
    training_steps: int = 0
    training_in_eval: int = 0
    passes: int = 0  # without gradients
    passes_in_train: int = 0
    in_a_row: int = 0  # longest run of passes without gradients between two steps
    row: int = 0
    row_step: int = -1
    copied: bool = False
    trainable: bool | None = None
    site: Site = ("", 0)
    pass_site: Site = ("", 0)
    initial: nn.Module | None = None
    parameters: set[int] = field(default_factory=set)


@dataclass
class Layer:
    """Units of one ReLU, over everything seen."""

    where: str
    alive: Tensor
    samples: int = 0


@dataclass
class Facts:
    """Everything seen of one run."""

    steps: int = 0
    looks: int = 0
    losses: list[tuple[int, float]] = field(default_factory=list)
    optimizers: dict[int, Seen] = field(default_factory=dict)
    slots: dict[int, Slot] = field(default_factory=dict)
    models: dict[int, Calls] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)
    called: dict[int, nn.Module] = field(default_factory=dict)
    reached: dict[int, Tensor] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)  # nodes of the graph at each look
    graphs: list[tuple[int, Any]] = field(
        default_factory=list
    )  # (step, weak reference that dies with the graph)
    held: list[tuple[int, int]] = field(default_factory=list)  # (graphs alive, graphs made)
    outputs: list[tuple[int, Any]] = field(default_factory=list)  # the same of what models gave
    outputs_held: list[tuple[int, int]] = field(default_factory=list)
    softmaxes: dict[str, set[int]] = field(default_factory=dict)  # steps in which each stood before a loss
    mixed: tuple[str, int] | None = None
    crossed: str = ""  # a view that cut across samples, where one was seen
    broadcast: float | None = None
    layers: dict[str, Layer] = field(default_factory=dict)
    saturated: float | None = None
    entropies: dict[str, list[tuple[int, list[float], int]]] = field(default_factory=dict)
    widths: dict[str, float] = field(default_factory=dict)  # deviation of attention's first scores
    normalisers: dict[str, tuple[float, bool]] = field(default_factory=dict)
    labels: list[Counter] = field(default_factory=list)
    classes: int | None = None
    first_apart: Any = None
    bad_step: int | None = None
    bad_module: str = ""
    bad_kind: str = ""
    fingerprints: list[int] = field(default_factory=list)
    rows: int = 0
    held_rows: int = 0  # rows of the tensor or loader a repeated batch comes from
    trained: set[int] = field(default_factory=set)
    evaluated: list[list[int]] = field(default_factory=list)
    continuous: bool = True  # samples evaluated are of numbers that do not repeat by chance
    loss_site: Site = ("", 0)
    forward_site: Site = ("", 0)
    loaders: dict[int, dict] = field(default_factory=dict)
    scaler: bool = False
    shifted: bool = False  # targets are the inputs, one later
    steep: bool = False  # gradients vanish or explode with depth: what else goes wrong follows from it
    notes: list[str] = field(default_factory=list)
    raised: str = ""
    whole: bool = False  # the script came to its own end: schedules went as far as they go
    measured: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    own: float = 0.0

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def name(self, parameter: Tensor) -> str:
        return self.names.get(id(parameter), f"a parameter of shape {tuple(parameter.shape)}")

"""Text from a model of the next token, p(x_t | x_<t): draw, append, repeat.

A model with `vocabulary`, `block`, `forward(tokens)` and `step(tokens, state)` gets `generate` and `stream`
by inheriting `Generates`. How a token is chosen is in `sampling`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..nn.checks import check_count
from .sampling import check_sampling, distribution, next_token

Prompt = Sequence[int] | Tensor
Stop = int | str | Sequence[int | str | Sequence[int]]


class Candidate(NamedTuple):
    """A token, its probability by the model, and its chance to be drawn (after temperature, top-k, top-p)."""

    token: int
    probability: float
    chance: float


@dataclass(frozen=True)
class Draw:
    """A token as it is generated: for which prompt, how probable, what it beat, whether the text ends."""

    row: int
    token: int
    probability: float
    chance: float
    alternatives: tuple[Candidate, ...] = ()
    ended: str = ""  # "", "length" or "stop"


class Generates:
    """What a model of the next token can do.

    It has `vocabulary`, `block` (how many tokens it was made for, None for any number), `forward(tokens)` and
    `step(tokens, state, last=False)`.
    """

    vocabulary: int
    block: int | None
    step: Callable

    def decoder(self, state: Any, room: int) -> Callable[[Tensor], Tensor]:
        """From the next tokens, (rows, 1), to logits, after `state`; it will hear at most `room` tokens.

        A model may have one that is faster than its `step`.
        """

        def follow(tokens: Tensor) -> Tensor:
            nonlocal state
            logits, state = self.step(tokens, state)
            return logits

        return follow

    def generate(
        self,
        prompt: Prompt | Sequence[Prompt],
        length: int,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | Sequence[int] | None = None,
        stop: Stop | None = None,
        decode: Callable[[list[int]], str] | None = None,
        start: int = 0,
        window: int | None = None,
        hop: int | None = None,
        cache: bool = True,
    ) -> Tensor | list[Tensor]:
        """A prompt with up to `length` tokens after it; for several prompts, of any lengths, a list of them.

        Args:
            prompt: tokens, or several sequences of them (or a tensor of two dimensions). An empty one is
                continued from the token `start`, which is not part of the result.
            temperature, top_k, top_p: see `distribution`. Temperature 0 takes the most probable token.
            seed: of the draws, whatever torch's generator does; of several prompts number b draws with
                seed + b (or give one seed each). None takes a seed from torch's generator.
            stop: ends a text after a token, a sequence of tokens or (with `decode`) a string; or a list of
                these. What ends it is part of the result. Only new tokens are searched.
            decode: from a list of tokens to the text that is searched for stop strings.
            window: how many tokens the model sees at most; its `block` unless given. Past that the oldest
                are dropped `hop` at a time (half a window unless given), and the model starts afresh on the
                rest: positions of any kind count from there. With hop=1 it sees exactly the last `window`.
            cache: keep keys and values (or a kernel's state) from token to token; the result is the same.

        What is generated for a prompt does not depend on the others: shorter ones are continued while longer
        ones are still being read.
        """
        work = Generation(
            self,
            prompt,
            length,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            stop=stop,
            decode=decode,
            start=start,
            window=window,
            hop=hop,
            cache=cache,
        )
        with _evaluating(self), torch.inference_mode():
            while not work.done:
                work.advance()
        return work.result()

    def stream(
        self, prompt: Prompt | Sequence[Prompt], length: int, *, alternatives: int = 5, **options: Any
    ) -> Iterator[Draw]:
        """Each token as a `Draw` when it is drawn: its probability, and the likeliest `alternatives` it beat.

        Takes the options of `generate`, and draws the same tokens.
        """
        check_count("stream", least=0, alternatives=alternatives)
        return self._stream(Generation(self, prompt, length, **options), alternatives)

    def _stream(self, work: Generation, alternatives: int) -> Iterator[Draw]:
        while not work.done:
            with _evaluating(self), torch.inference_mode():  # not while the caller looks at what is yielded
                drawn = work.describe(work.advance(), alternatives)
            yield from drawn


class _evaluating:
    """Eval mode and back; free where the model is in it already."""

    def __init__(self, model: Any):
        self.model, self.before = model, model.training

    def __enter__(self):
        if self.before:
            self.model.eval()

    def __exit__(self, *error):
        if self.before:
            self.model.train()


class Generation:
    """Prompts being continued, all at one place t: a row still reads its prompt, or draws, or is done."""

    def __init__(
        self,
        model: Any,
        prompt,
        length: int,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | Sequence[int] | None = None,
        stop: Stop | None = None,
        decode: Callable[[list[int]], str] | None = None,
        start: int = 0,
        window: int | None = None,
        hop: int | None = None,
        cache: bool = True,
    ):
        check_sampling(temperature, top_k, top_p)
        check_count("generate", least=0, length=length)
        self.model, self.length, self.cache = model, length, cache
        self.sampling: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        self.window, self.hop = _slide(model, window, hop)
        self.stops, self.decode = _stops(stop, decode, model.vocabulary), decode
        rows, self.single = _rows(prompt)
        self.unseen = [0 if row else 1 for row in rows]  # an empty prompt's first token is not its own
        rows = [row or [start] for row in rows]
        _check_tokens(rows, model.vocabulary)
        self.begins = [len(row) for row in rows]
        self.ends = [begin + length for begin in self.begins]
        self.stopped = [False] * len(rows)
        self.together = len(set(self.begins)) == 1 and self.stops is None
        self.place = min(self.begins, default=0)
        device = next(model.parameters()).device
        self.tokens = torch.zeros(len(rows), max(self.ends, default=0), dtype=torch.long, device=device)
        for line, row in zip(self.tokens, rows, strict=True):
            line[: len(row)] = torch.tensor(row, device=device)
        self.uniform = _uniform(seed, len(rows), length).to(device) if temperature else None
        self.follow: Callable[[Tensor], Tensor] | None = None
        self.oldest = -1  # the place of the first token the model sees

    @property
    def done(self) -> bool:
        return self.length == 0 or self.place >= max(self.ends, default=0)

    def advance(self) -> Tensor:
        """Fill the next place in all rows; the logits it was drawn from, (rows, vocabulary)."""
        logits, place = self._logits(), self.place
        drawn = next_token(logits, uniform=self._luck(place), **self.sampling)
        self.place += 1
        if self.together:
            self.tokens[:, place] = drawn
            return logits
        for row in self._drawing(place):
            self.tokens[row, place] = drawn[row]
            if self.stops is not None and self._stops_here(row):
                self.ends[row], self.stopped[row] = self.place, True
        return logits

    def _logits(self) -> Tensor:
        place = self.place
        over = 0 if self.window is None else max(0, place - self.window)
        oldest = -(-over // self.hop) * self.hop
        fresh, self.oldest = oldest != self.oldest, oldest
        if not self.cache:
            logits = self.model(self.tokens[:, oldest:place])
        elif fresh:
            logits, state = self.model.step(self.tokens[:, oldest:place], None, last=True)
            rest = self.tokens.shape[1] - oldest
            self.follow = None  # a recording is one text's at a time, and this is still that text
            self.follow = self.model.decoder(state, rest if self.window is None else min(rest, self.window))
        else:
            assert self.follow is not None
            logits = self.follow(self.tokens[:, place - 1 : place])
        logits = logits[:, -1]
        if fresh and not logits.isfinite().any(-1).all():
            raise ValueError("generate(): the model's logits are not finite; did its training diverge?")
        return logits

    def _luck(self, place: int) -> Tensor | None:
        """The number that decides each row's draw: its n-th for its n-th new token."""
        if self.uniform is None:
            return None
        if self.together:
            return self.uniform[:, place - self.begins[0]]
        n = torch.tensor([min(max(place - begin, 0), self.length - 1) for begin in self.begins])
        return self.uniform.gather(1, n[:, None].to(self.uniform.device))[:, 0]

    def _drawing(self, place: int) -> list[int]:
        return [row for row, begin in enumerate(self.begins) if begin <= place < self.ends[row]]

    def _stops_here(self, row: int) -> bool:
        assert self.stops is not None
        new = self.tokens[row, self.begins[row] : self.place].tolist()
        sequences, texts = self.stops
        if any(new[-len(sequence) :] == sequence for sequence in sequences):
            return True
        if not texts or self.decode is None:
            return False
        text = self.decode(new)
        return any(wanted in text for wanted in texts)

    def describe(self, logits: Tensor, alternatives: int) -> list[Draw]:
        """What the last `advance` drew, row by row."""
        place = self.place - 1
        probability, chance = torch.softmax(logits.double(), -1), distribution(logits, **self.sampling)
        best = probability.topk(min(alternatives + 1, probability.shape[-1]), -1).indices
        found = []
        for row in self._drawing(place):
            token = int(self.tokens[row, place])
            others = [other for other in best[row].tolist() if other != token][:alternatives]
            drawn, *beaten = (
                Candidate(one, float(probability[row, one]), float(chance[row, one]))
                for one in (token, *others)
            )
            ended = "" if self.place < self.ends[row] else "stop" if self.stopped[row] else "length"
            found.append(Draw(row, *drawn, tuple(beaten), ended))
        return found

    def result(self) -> Tensor | list[Tensor]:
        # Copies made outside inference mode can be trained on.
        texts = [
            self.tokens[row, unseen:end].clone()
            for row, (unseen, end) in enumerate(zip(self.unseen, self.ends, strict=True))
        ]
        return texts[0] if self.single else texts


def _rows(prompt) -> tuple[list[list[int]], bool]:
    """Prompts as lists of tokens, and whether there was but one."""
    if isinstance(prompt, str):
        raise TypeError(f"generate(prompt={prompt[:20]!r}): takes tokens, not text; encode it first.")
    rows = [row.tolist() if hasattr(row, "tolist") else row for row in prompt]
    several = getattr(prompt, "ndim", 1) == 2 or (len(rows) > 0 and isinstance(rows[0], (list, tuple)))
    rows = [list(row) for row in rows] if several else [rows]
    for token in (token for row in rows for token in row):
        if isinstance(token, bool) or not isinstance(token, int):
            raise TypeError(
                f"generate(prompt=…): a token is a whole number, got {token!r}; several prompts are a list "
                f"of lists, or of tensors."
            )
    return rows, not several


def _check_tokens(rows: list[list[int]], vocabulary: int) -> None:
    for token in (token for row in rows for token in row):
        if not 0 <= token < vocabulary:
            raise ValueError(f"generate(): token {token} is not in the vocabulary, 0 … {vocabulary - 1}.")


def _slide(model: Any, window: int | None, hop: int | None) -> tuple[int | None, int]:
    window = model.block if window is None else window
    if window is None:
        return None, 1
    check_count("generate", window=window)
    hop = max(1, window // 2) if hop is None else hop
    check_count("generate", hop=hop)
    if hop > window:
        raise ValueError(f"generate(hop={hop}): would drop more than the window of {window} tokens.")
    return window, hop


def _uniform(seed: int | Sequence[int] | None, rows: int, length: int) -> Tensor:
    """Numbers in [0, 1), (rows, length): a row's own, whatever the other rows and torch's generator."""
    if seed is None:
        seed = int(torch.randint(2**31, ()))
    seeds = [seed + row for row in range(rows)] if isinstance(seed, int) else list(seed)
    if len(seeds) != rows:
        raise ValueError(f"generate(seed=…): got {len(seeds)} seeds for {rows} prompts.")
    found = torch.empty(rows, length, dtype=torch.float64)
    for line, one in zip(found, seeds, strict=True):
        line.uniform_(generator=torch.Generator().manual_seed(one))
    return found


def _stops(stop, decode, vocabulary: int) -> tuple[list[list[int]], list[str]] | None:
    """The sequences of tokens and the texts that end a row."""
    if stop is None:
        return None
    known = [stop] if isinstance(stop, (int, str)) else list(stop)
    texts = [one for one in known if isinstance(one, str)]
    sequences = [[one] if isinstance(one, int) else list(one) for one in known if not isinstance(one, str)]
    if not all(texts) or not all(sequences):
        raise ValueError(f"generate(stop={stop!r}): an empty stop would end every text at once.")
    if texts and decode is None:
        raise ValueError(
            f"generate(stop={texts[0]!r}): to find text pass decode=, from a list of tokens to text."
        )
    _check_tokens(sequences, vocabulary)
    return (sequences, texts) if known else None

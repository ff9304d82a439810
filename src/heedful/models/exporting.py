"""One step of a GPT as a function of tensors alone, of fixed sizes: what `torch.export` and ONNX can take."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..attention.decode import step
from ..attention.similarity import Polynomial, RandomFeatures, Softmax
from ..attention.strategies import ScanState
from ..nn import Attention, LearnedPositions
from ..nn.checks import check_count
from .gpt import GPT


class GPTStep(nn.Module):
    """logits_t, state_t = f(token_t, t, state_{t−1}), with `room` tokens to remember, or a kernel's total.

    The state is a tuple of tensors whose sizes never change; `initial_state(rows)` begins. Softmax keeps keys
    and values of `room` tokens, (rows, 2, heads, room, width) a block, and hears those up to t. Kernels keep
    Σ φ(k)[v, 1]ᵀ, and `room` does not limit them.

    >>> import torch
    >>> from heedful.models import GPT, GPTStep
    >>> step = GPTStep(GPT.of_size("nano", vocabulary=87).eval(), room=64)
    >>> state = step.initial_state(rows=1)
    >>> program = torch.export.export(step, (torch.tensor([[5]]), torch.tensor(0), state))
    >>> logits, state = program.module()(torch.tensor([[5]]), torch.tensor(0), state)
    >>> logits.shape
    torch.Size([1, 1, 87])
    """

    def __init__(self, gpt: GPT, room: int):
        super().__init__()
        first = gpt.blocks[0].attention
        similarity, position = first.similarity, first.position
        back = first.neighbors.facts(1 << 30, 1 << 30).interval[1]
        kernel = similarity.feature_count(first.head_dim) is not None
        decays = position is None or position.rotates or position.facts().decay
        if not isinstance(similarity, Softmax) and not (kernel and decays and back == float("inf")):
            raise ValueError(
                f"GPTStep: there are steps of fixed size for Softmax, and for kernels over the whole past "
                f"with rotary, ALiBi or added positions; not for {similarity}, {position}, {first.neighbors}."
            )
        check_count("GPTStep", room=room)
        if isinstance(gpt.positions, LearnedPositions) and room > len(gpt.positions.weight):
            raise ValueError(f"GPTStep(room={room}): the model has learned {gpt.block} positions.")
        self.gpt, self.room, self.back = gpt, room, back
        self.kernel, self.sized = kernel, isinstance(similarity, Polynomial | RandomFeatures)

    def initial_state(self, rows: int) -> tuple[Tensor, ...]:
        """What nobody has spoken to yet."""
        like, found = self.gpt.embedding.weight, []
        for block in self.gpt.blocks:
            layer = block.attention
            if not self.kernel:
                found.append(like.new_zeros(rows, 2, layer.kv_heads, self.room, layer.head_dim))
                continue
            features = layer.similarity.feature_count(layer.head_dim)
            wide = torch.promote_types(like.dtype, torch.float32)
            found.append(like.new_zeros(rows, layer.heads, features, layer.head_dim + 1, dtype=wide))
            if self.sized:  # what was taken out of the keys so far: so little that any key takes out more
                limits, powers = torch.finfo(wide), isinstance(layer.similarity, Polynomial)
                shape = rows, layer.heads, 1, 1 if powers else features
                found.append(like.new_full(shape, limits.tiny if powers else limits.min / 2, dtype=wide))
        return tuple(found)

    def forward(
        self, tokens: Tensor, place: Tensor, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Logits after tokens (rows, 1) that stand at `place` (0 … room − 1), and the new state."""
        gpt, after = self.gpt, []
        x = gpt.embedding(tokens)
        if isinstance(gpt.positions, LearnedPositions):
            x = x + gpt.positions.weight.index_select(0, place.view(1))
        elif gpt.positions is not None:
            x = gpt.positions(x, place)
        each = len(state) // len(gpt.blocks)
        for n, block in enumerate(gpt.blocks):

            def listen(z, layer=block.attention, own=state[n * each : (n + 1) * each]):
                out, new = (
                    self._scan(layer, z, place, own) if self.kernel else self._recall(layer, z, place, *own)
                )
                after.extend(new)
                return layer.output(out.transpose(-2, -3).flatten(-2))

            x = block.beside(x, block.attention_norm, listen)
            x = block.beside(x, block.feed_forward_norm, block.feed_forward)
        return gpt.logits(x), tuple(after)

    def _recall(self, layer: Attention, x: Tensor, place: Tensor, kept: Tensor):
        """Softmax over the tokens kept so far, and this one."""
        query, key, value = layer.project(x)
        position, similarity = layer.position, layer.similarity
        if position is not None and position.rotates:
            query, key = position.rotate(query, place), position.rotate(key, place)
        kept = kept.index_copy(3, place.view(1), torch.stack([key, value], 1))
        distance = place - torch.arange(self.room, device=x.device)
        heard = (distance >= 0) & (distance <= self.back)
        mask = torch.zeros(self.room, dtype=x.dtype, device=x.device)
        if position is not None and not position.rotates:
            table = position.table(1, self.room, layer.heads, query)  # over distances 0 … room − 1
            mask = table[:, distance.clamp_min(0)][:, None]
        query, key = similarity.prepare(query, kept[:, 0])
        mask = mask.masked_fill(~heard, -torch.inf).expand(1, layer.heads, 1, self.room)
        grouped = layer.heads != layer.kv_heads
        out = F.scaled_dot_product_attention(query, key, kept[:, 1], mask, scale=1.0, enable_gqa=grouped)
        return out, (kept,)

    def _scan(self, layer: Attention, x: Tensor, place: Tensor, own: tuple[Tensor, ...]):
        """A kernel's total, brought up to date and asked."""
        total, size = own if self.sized else (own[0], None)
        out, new = step(
            *layer.project(x),
            ScanState(total, size, place),  # type: ignore[arg-type]
            similarity=layer.similarity,
            neighbors=layer.neighbors,
            position=layer.position,
        )
        assert isinstance(new, ScanState)
        return out, (new.total, new.size) if self.sized else (new.total,)

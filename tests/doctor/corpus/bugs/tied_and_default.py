"""A GPT of two layers with tied embeddings, as torch initialises them."""

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY, DIM, LENGTH = 64, 96, 16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.project = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(
            nn.LayerNorm(DIM), nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM)
        )
        self.norm = nn.LayerNorm(DIM)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (4, -1)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        x = x + self.project(
            F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        )
        return x + self.mlp(x)


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, DIM), nn.Embedding(LENGTH, DIM)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.tokens(x) + self.positions.weight[: x.shape[1]])))


following = torch.randint(VOCABULARY, (VOCABULARY, 3))
model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
for step in range(40):
    text = torch.randint(VOCABULARY, (16, 1))
    for _ in range(LENGTH):
        text = torch.cat([text, following[text[:, -1], torch.randint(3, (16,))][:, None]], 1)
    loss = F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

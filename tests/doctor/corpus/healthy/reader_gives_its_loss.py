import torch
from torch import nn
from torch.nn import functional as F

song = "row row row your boat gently down the stream merrily merrily merrily merrily life is but a dream "
letters = sorted(set(song))
data = torch.tensor([letters.index(c) for c in song * 12])


class Reader(nn.Module):
    def __init__(self, width=32, length=24):
        super().__init__()
        self.letters = nn.Embedding(len(letters), width)
        self.places = nn.Embedding(length, width)
        self.qkv = nn.Linear(width, 3 * width)
        self.more = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))
        self.out = nn.Linear(width, len(letters))

    def forward(self, idx, targets=None):
        h = self.letters(idx) + self.places(torch.arange(idx.shape[1]))
        q, k, v = self.qkv(h).chunk(3, -1)
        h = h + F.scaled_dot_product_attention(q, k, v, is_causal=True)
        logits = self.out(h + self.more(h))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.view(-1, len(letters)), targets.view(-1))


model = Reader()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(40):
    start = torch.randint(len(data) - 25, (12,))
    x = torch.stack([data[i : i + 24] for i in start])
    y = torch.stack([data[i + 1 : i + 25] for i in start])
    logits, loss = model(x, targets=y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()

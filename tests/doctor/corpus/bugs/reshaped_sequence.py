import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.conv = nn.Conv1d(16, 5, 3, padding=1)

    def forward(self, tokens):
        return self.conv(self.embed(tokens).transpose(1, 2))  # (batch, tags, length)


model = Tagger()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
tokens = torch.randint(20, (128, 11))
tags = tokens % 5
for _ in range(25):
    pick = torch.randint(128, (16,))
    logits = model(tokens[pick])
    loss = nn.functional.cross_entropy(logits.reshape(-1, 5), tags[pick].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

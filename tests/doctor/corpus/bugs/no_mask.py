import torch
from torch import nn


class LM(nn.Module):
    def __init__(self, vocabulary=20, width=16):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.block = nn.TransformerEncoderLayer(width, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        return self.head(self.block(self.embed(tokens)))


model = LM()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
text = torch.randint(20, (64, 13))
for _ in range(20):
    batch = text[torch.randint(64, (8,))]
    logits = model(batch[:, :-1])
    loss = nn.functional.cross_entropy(logits.reshape(-1, 20), batch[:, 1:].reshape(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()

import torch
from torch import nn


class Word(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(40, 24)
        nn.init.normal_(self.embed.weight, std=0.05)
        self.rnn = nn.GRU(24, 24, batch_first=True)

    def forward(self, x):
        return self.rnn(self.embed(x))[0] @ self.embed.weight.T


net = Word()
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
text = (torch.arange(400) * 7 + torch.randint(2, (400,))) % 40
for _ in range(30):
    rows = torch.stack([text[s : s + 13] for s in torch.randint(380, (10,))])
    loss = nn.functional.cross_entropy(net(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    opt.step()

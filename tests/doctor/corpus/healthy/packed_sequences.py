import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class N(nn.Module):
    def __init__(s):
        super().__init__()
        s.e = nn.Embedding(20, 12, padding_idx=0)
        s.l = nn.LSTM(12, 16, batch_first=True, bidirectional=True)
        s.o = nn.Linear(32, 3)

    def forward(s, t, n):
        h, _ = pad_packed_sequence(
            s.l(pack_padded_sequence(s.e(t), n, batch_first=True, enforce_sorted=False))[0], batch_first=True
        )
        return s.o(h.max(1).values)


m = N()
o = torch.optim.Adam(m.parameters(), 5e-3)
for _ in range(30):
    n = torch.randint(3, 9, (16,))
    t = torch.randint(1, 20, (16, 8))
    t[torch.arange(8) >= n[:, None]] = 0
    y = t[:, 0] % 3
    o.zero_grad()
    nn.functional.cross_entropy(m(t, n), y).backward()
    o.step()

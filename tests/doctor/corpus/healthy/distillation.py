import torch
import torch.nn.functional as F
from torch import nn

teacher = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 4)).eval()
student = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 4))
opt = torch.optim.AdamW(student.parameters(), lr=3e-3)
x = torch.randn(300, 10)
for _ in range(30):
    batch = x[torch.randint(300, (32,))]
    with torch.no_grad():
        soft = F.softmax(teacher(batch) / 2, -1)
    loss = F.kl_div(F.log_softmax(student(batch) / 2, -1), soft, reduction="batchmean") * 4
    opt.zero_grad()
    loss.backward()
    opt.step()

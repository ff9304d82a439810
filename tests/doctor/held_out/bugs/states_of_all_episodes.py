"""Policy gradients; log probabilities of all episodes so far are in one list."""

import torch
from torch import nn

policy = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 2))
opt = torch.optim.Adam(policy.parameters(), lr=5e-3)
history = {"log_prob": [], "reward": []}
for episode in range(60):
    state = torch.randn(20, 3)
    choice = torch.distributions.Categorical(logits=policy(state))
    action = choice.sample()
    reward = torch.where(action == (state[:, 0] > 0), 1.0, -1.0)
    log_prob = choice.log_prob(action)
    history["log_prob"].append(log_prob)
    history["reward"].append(reward)
    loss = -(log_prob * reward).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

"""PPO on a corridor: rollouts, advantages, several epochs of minibatches on each rollout."""

import torch
from torch import nn
from torch.distributions import Categorical


class Corridor:
    def __init__(self, count):
        self.count = count
        self.reset()

    def reset(self):
        self.at = torch.randint(-3, 4, (self.count,)).float()
        return self.look()

    def look(self):
        return torch.stack([self.at / 5, (self.at > 0).float(), torch.ones_like(self.at)], 1)

    def step(self, action):
        self.at = self.at + (action.float() * 2 - 1)
        reward = -self.at.abs() / 5
        done = self.at.abs() > 5
        self.at = torch.where(done, torch.zeros_like(self.at), self.at)
        return self.look(), reward, done.float()


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.pi, self.v = nn.Linear(64, 2), nn.Linear(64, 1)
        nn.init.orthogonal_(self.pi.weight, 0.01)

    def forward(self, s):
        h = self.shared(s)
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


env, agent = Corridor(16), ActorCritic()
optimizer = torch.optim.Adam(agent.parameters(), lr=3e-4, eps=1e-5)
state = env.reset()
for iteration in range(5):
    S, A, L, R, D, V = [], [], [], [], [], []
    with torch.no_grad():
        for _ in range(16):
            dist, value = agent(state)
            action = dist.sample()
            S.append(state), A.append(action), L.append(dist.log_prob(action)), V.append(value)
            state, reward, done = env.step(action)
            R.append(reward), D.append(done)
        last = agent(state)[1]
        advantage, running = [], torch.zeros(16)
        for t in reversed(range(16)):
            following = last if t == 15 else V[t + 1]
            delta = R[t] + 0.99 * following * (1 - D[t]) - V[t]
            running = delta + 0.99 * 0.95 * (1 - D[t]) * running
            advantage.insert(0, running)
    S, A, L, V, advantage = (torch.cat(x) for x in (S, A, L, V, advantage))
    returns = advantage + V
    for epoch in range(3):
        for rows in torch.randperm(len(S)).split(64):
            dist, value = agent(S[rows])
            ratio = (dist.log_prob(A[rows]) - L[rows]).exp()
            gain = advantage[rows]
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
            policy = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
            loss = policy + 0.5 * (value - returns[rows]).pow(2).mean() - 0.01 * dist.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()

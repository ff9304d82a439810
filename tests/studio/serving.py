"""A studio as a user has it: a process of its own, an address, a browser."""

from __future__ import annotations

import http.client
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import torch
from torch.nn import functional as F

from heedful import Graph, data, lab
from heedful.models import GAT, GPT, ViT
from heedful.studio.jobs import Jobs

# A run that nobody will see the end of.
ENDLESS = {"problem": "bowl", "cleared": "yes", "steps": "100000000"}


class Server:
    """`heedful studio` over a store. It can be ended and started again, at the same port."""

    def __init__(self, runs: Path):
        self.runs, self.port = runs, 0
        self.start()

    def start(self) -> None:
        command = [
            sys.executable,
            "-m",
            "heedful",
            "studio",
            "--runs",
            str(self.runs),
            "--port",
            str(self.port),
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        ready, _, _ = select.select([self.process.stdout], [], [], 120)
        assert ready, "the studio did not start"
        line = self.process.stdout.readline().decode()
        self.address = re.search(r"http://\S+", line)[0]
        self.home = self.address.partition("/?")[0]
        self.port, self.token = urlsplit(self.home).port, self.address.partition("token=")[2]

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def close(self) -> None:
        """End the studio, and what it started."""
        self.stop()
        for job in Jobs(lab.Store(self.runs)).all():
            if job.alive:
                os.killpg(job.pid, signal.SIGKILL)

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, str]:
        """A request as it is written here: no path is tidied, no header added but Host and the cookie."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = {"Host": f"127.0.0.1:{self.port}", "Cookie": f"heedful-{self.port}={self.token}"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, body, {name: value for name, value in sent.items() if value})
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")
        finally:
            connection.close()

    def begin(self, **settings: str) -> lab.Run:
        """A run of zero-grad, as its form begins it, once it is there."""
        body = "&".join(f"set.{name}={value}" for name, value in settings.items()) + "&seeds=1&profile=quick"
        status, said = self.ask("POST", "/studies/zero-grad/run", body.encode(), Origin=self.home)
        assert status == 303, said
        with lab.Store(self.runs) as store:
            jobs = Jobs(store)
            newest = jobs.all()[0]
            return until(lambda: jobs.run_of(newest))

    def memory(self) -> int:
        """Bytes that the studio's process holds."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def until(there, seconds: float = 120):
    end = time.monotonic() + seconds
    while not (found := there()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)
    return found


def chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for name in names if (path := shutil.which(name))), None)


def keep(runs: Path, place: int, model, **notes) -> str:
    """Put a model where a study would keep it; the number of its trial."""
    settings = {"problem": "bowl", "cleared": "yes", "steps": 2 + place}
    (trial,) = lab.run(
        "zero-grad", store=runs, profile="quick", backend="loop", seeds=1, settings=settings
    ).trials
    trial.folder.mkdir(parents=True, exist_ok=True)
    model.save(trial.folder / "model.safetensors", notes=notes)
    return str(trial.id)


def fit(model, loss, steps: int, rate: float):
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()
    return model.eval()


def trained(runs: Path) -> dict[str, str]:
    """A GPT that knows a page by heart, a ViT that tells digits, a GAT that tells the club's factions."""
    torch.manual_seed(0)
    book = data.load("python-docs").text[:160]
    symbols = sorted(set(book))
    codes = torch.tensor([symbols.index(letter) for letter in book])
    windows = codes.unfold(0, 33, 4)
    gpt = GPT(len(symbols), layers=1, heads=2, dim=48, block=32)
    fit(gpt, lambda model: model.loss(windows), 150, 1e-2)
    digits = data.load("digits").scaled().train
    x, y = (digits.inputs[:400] - 0.5) / 0.25, digits.labels[:400]
    vit = ViT(8, 2, 1, 10, layers=1, heads=2, dim=24)
    fit(vit, lambda model: F.cross_entropy(model(x), y), 25, 1e-2)
    club = data.load("karate").row_normalized()
    rows = Graph.from_dense(club.features)
    gat = GAT(34, 8, 2, dropout=0.0)
    fit(
        gat,
        lambda model: F.cross_entropy(model(rows, club.graph)[club.train], club.labels[club.train]),
        60,
        2e-2,
    )
    images = {"classes": list("0123456789"), "channels": 1, "size": [8, 8], "mean": 0.5, "deviation": 0.25}
    return {
        "gpt": keep(runs, 0, gpt, use="text", symbols=symbols, text="python-docs"),
        "vit": keep(runs, 1, vit, use="classes", dataset="digits", **images),
        "gat": keep(runs, 2, gat, use="nodes", dataset="karate", classes=list(club.classes)),
    }


def told(line: str) -> dict:
    return json.loads(line.removeprefix("data: "))

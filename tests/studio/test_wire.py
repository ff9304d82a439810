"""What goes over the wire to a real server: what is refused, and what fifty pages at once are told."""

from __future__ import annotations

import asyncio
import sys
import time

import pytest
from serving import ENDLESS, Server, told

CLIENTS, SECONDS = 50, 30.0


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("wire") / "runs")
    yield server
    server.close()


def test_strangers_are_refused(server):
    run = b"profile=quick"
    origin = server.home
    for asked, status, said in (
        (("GET", "/", b"", {"Cookie": ""}), 401, "No token came along"),
        (("GET", "/?token=wrong", b"", {"Cookie": ""}), 401, "not this studio"),
        (("GET", "/", b"", {"Host": "evil.example"}), 421, "Not this host"),
        (("GET", "/", b"", {"Host": f"evil.example:{server.port}"}), 421, "Not this host"),
        (("GET", "/", b"", {"Origin": "http://evil.example"}), 403, "another web site"),
        (("POST", "/studies/zero-grad/run", run, {"Origin": "http://evil.example"}), 403, "another web site"),
        (("POST", "/studies/zero-grad/run", run, {}), 403, "another web site"),
        (("POST", "/attention/pictures", b"x", {"Origin": "null"}), 403, "another web site"),
        (("POST", "/studies/nothing/run", run, {"Origin": origin}), 404, "no study"),
        (("POST", "/studies/zero-grad/run", b"runs=/tmp", {"Origin": origin}), 422, "no option"),
        (("POST", "/studies/zero-grad/run", b"set.stepz=3", {"Origin": origin}), 422, "no setting"),
        (("POST", "/studies/zero-grad/run", b"x" * 100_000, {"Origin": origin}), 413, "64 kB at most"),
        (("POST", "/attention/pictures", b"\x89PNG" * 1_500_000, {"Origin": origin}), 413, "4096 kB at most"),
        (("POST", "/attention/pictures", b"GIF89a", {"Origin": origin}), 422, "must be PNG, JPEG"),
    ):
        method, path, body, headers = asked
        found = server.ask(method, path, body, **headers)
        assert found[0] == status and said in found[1], (asked[:2], headers, found[0])
    assert not list(server.runs.glob("studio/*"))


@pytest.mark.parametrize(
    "path",
    ["/static/../app.py", "/static/..%2fapp.py", "/static/%2e%2e/%2e%2e/cli.py", "/static//etc/passwd",
     "/runs/../../secret.json", "/runs/..%2f..%2fsecret/figure.png", "/doctor/..%2fsecret", "/../secret.json",
     "/doctor/../secret.json", "/jobs/..%2f..%2fsecret", "/doctor/secret%00"],
)  # fmt: skip
def test_no_path_leads_out(server, path):
    (server.runs / "secret.json").write_text('{"a": "secret word"}')
    status, said = server.ask("GET", path)
    assert status == 404 and "secret word" not in said and "import" not in said


async def follow(server, run: str, late: float) -> list[str]:
    """The states that a page is told, from when it comes."""
    await asyncio.sleep(late)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(
        f"GET /runs/{run}/events HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
        f"Cookie: heedful-{server.port}={server.token}\r\nConnection: close\r\n\r\n".encode()
    )
    states, over = [], False
    while line := (await reader.readline()).decode():
        if line.startswith('data: {"'):
            states.append(told(line)["state"])
        over = over or line.startswith("event: over")
    writer.close()
    assert over, "the stream broke off"
    return states


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_fifty_pages_hear_the_end_and_memory_stays_flat(server):
    run = server.begin(**ENDLESS)

    async def watch() -> tuple[list[list[str]], list[int]]:
        # They come over the first seconds, as people do; a quarter of the time is for warming up.
        pages = [asyncio.create_task(follow(server, run.id, 4.0 * n / CLIENTS)) for n in range(CLIENTS)]
        held, end = [], time.monotonic() + SECONDS
        while time.monotonic() < end:
            await asyncio.sleep(0.5)
            held.append(server.memory())
        status, _ = await asyncio.to_thread(server.ask, "POST", f"/runs/{run.id}/stop", Origin=server.home)
        assert status == 303
        return await asyncio.wait_for(asyncio.gather(*pages), 60), held

    pages, held = asyncio.run(watch())
    assert all(states[0] == "running" and states[-1] == "interrupted" for states in pages)
    assert all(len(states) > 5 for states in pages), "news came all the time"
    warm = held[len(held) // 4 :]
    third = len(warm) // 3
    early, late = sorted(warm[:third])[third // 2], sorted(warm[-third:])[third // 2]
    assert late - early < 4 * 2**20, f"memory grew from {early >> 20} to {late >> 20} MiB"

"""A browser for the studio's tests, and what it reads."""

from __future__ import annotations

import html
import json
import re

PORT = 8517
HOME = f"http://127.0.0.1:{PORT}"
TOKEN = "a-token-of-the-tests"


def browser(runs, *, origin: str | None = HOME, token: str | None = TOKEN, **options):
    """A client as a browser is: it keeps the cookie, and says where its forms come from."""
    from fastapi.testclient import TestClient

    from heedful.studio.app import create

    app = create(runs, token=TOKEN, port=PORT, **options)
    client = TestClient(app, base_url=HOME, headers={"Origin": origin} if origin else {})
    if token is not None:
        client.get("/static/report.css", params={"token": token})
        client.get("/", params={"token": token})
    return client


def text(answer) -> str:
    """A page without its tags."""
    return html.unescape(re.sub(r"<[^>]+>", " ", answer.text))


def events(studio, run) -> list[dict]:
    """What the live stream of a run says until it ends."""
    with studio.stream("GET", f"/runs/{run}/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: ")]
    assert lines[-1] == "{}"
    return [json.loads(line) for line in lines[:-1]]

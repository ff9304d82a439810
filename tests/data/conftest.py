"""A cache of the test's own, a server that can misbehave, and the real files where they are."""

from __future__ import annotations

import hashlib
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from heedful import data
from heedful.data import files, registry


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and no HEEDFUL_DATA."""
    folder = tmp_path / "cache"
    monkeypatch.setattr(files, "cache_folder", lambda: folder)
    monkeypatch.delenv("HEEDFUL_DATA", raising=False)
    return folder


@pytest.fixture(scope="session")
def real():
    """Load a set from files, or skip where they are not: a test must not download."""
    kept = {}

    def load(name: str, **options):
        try:
            places = data.where(name)
        except data.DataError as error:
            pytest.skip(str(error))
        elsewhere = [place.file.path for place in places if place.state == "remote"]
        if elsewhere:
            pytest.skip(f"{elsewhere[0]} is not here: set HEEDFUL_DATA to a folder that has it")
        key = (name, *sorted(options.items()))
        if key not in kept:
            kept[key] = data.load(name, **options)
        return kept[key]

    return load


@dataclass
class Server:
    """Serves `pages` by path: bytes, or a function that gets the handler."""

    address: str
    pages: dict = field(default_factory=dict)
    asked: list = field(default_factory=list)
    go_on: threading.Event = field(default_factory=threading.Event)

    def truncated(self, body: bytes):
        """Promise all of it, send half and hang up."""

        def send(handler):
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body[: len(body) // 2])
            handler.close_connection = True

        return send

    def stalling(self, body: bytes):
        """Send half, and the rest when told to go on."""

        def send(handler):
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body[: len(body) // 2])
            handler.wfile.flush()
            self.go_on.wait(60)
            handler.wfile.write(body[len(body) // 2 :])

        return send


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            serving.asked.append(self.path)
            page = serving.pages.get(self.path)
            if page is None:
                self.send_error(404)
            elif callable(page):
                with suppress(OSError):  # whoever asked is gone, which is what some tests are about
                    page(self)
            else:
                self.send_response(200)
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page)

        def log_message(self, *arguments):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    serving = Server(f"http://127.0.0.1:{http.server_address[1]}")
    thread = threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield serving
    serving.go_on.set()
    http.shutdown()
    http.server_close()
    thread.join()


@pytest.fixture
def entry_of():
    """A dataset of one file with these bytes at these addresses."""

    def make(body: bytes, *addresses: str, path: str = "toy/words.txt") -> registry.Dataset:
        file = registry.File(path, len(body), hashlib.sha256(body).hexdigest(), addresses)
        return registry.Dataset("toy", "text", "words", "formats.text:fairytales", "none", files=(file,))

    return make

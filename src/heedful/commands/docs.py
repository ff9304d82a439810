"""`heedful docs`: the documentation in a browser, from this machine."""

from __future__ import annotations

import subprocess
import sys
import webbrowser
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from rich.console import Console

from .common import UsageError

PACKAGE = Path(__file__).resolve().parents[1]
SITE = PACKAGE / "site"  # where `make docs` puts the pages, and where a wheel built after it has them
ROOT = PACKAGE.parents[1]


@dataclass
class Docs:
    """The documentation as a site on this machine; in a clone of the repository it is built first, if old."""

    port: int = 8516
    """Which port; 0 takes any that is free."""
    open: bool = True
    """Open it in a browser."""
    build: bool = False
    """Build the pages, also where they seem up to date, and serve nothing."""

    def run(self, console: Console) -> int:
        if not 0 <= self.port <= 65535:
            raise UsageError(f"--port is {self.port}; it is 0 to 65535")
        maker = ROOT / "docs" / "site" / "__main__.py"
        if maker.exists() and (self.build or outdated(SITE, ROOT)):
            build(maker)
        elif self.build:
            raise UsageError("--build needs a clone of heedful's repository: there, make docs does the same")
        if self.build:
            return 0
        if not (SITE / "index.html").exists():
            raise UsageError(
                "this heedful was installed without its pages: its wheel was built before them. "
                "In a clone of the repository `make docs` builds them and `make wheel` a wheel that has "
                "them; they can be read as text there, too, from docs/README.md on"
            )
        with server(SITE, self.port) as serving:
            address = f"http://127.0.0.1:{serving.server_address[1]}/"
            print(f"heedful docs: {address}\nCtrl-C ends it.", flush=True)
            if self.open:
                webbrowser.open(address)
            serving.serve_forever()
        return 0


class _Quiet(SimpleHTTPRequestHandler):
    """Files of one folder, without a line for each; a browser asks again whether one has changed."""

    def log_message(self, format, *args) -> None:
        pass

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()


def server(folder: Path, port: int = 0) -> ThreadingHTTPServer:
    """Serves a folder to this machine alone."""
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), partial(_Quiet, directory=str(folder)))
    except OSError as error:
        raise UsageError(
            f"port {port} cannot be used ({error.strerror}); --port 0 takes any that is free"
        ) from None


def outdated(site: Path, root: Path) -> bool:
    """Whether a page, or code that pages are made from, is newer than the site."""
    index = site / "index.html"
    if not index.exists():
        return True
    built = index.stat().st_mtime
    sources = [*(root / "docs").rglob("*"), *(root / "src").rglob("*.py")]
    return any(
        path.stat().st_mtime > built for path in sources if path.is_file() and "__pycache__" not in path.parts
    )


def build(maker: Path) -> None:
    try:
        import zensical  # noqa: F401
    except ModuleNotFoundError:
        raise UsageError("building the pages needs zensical: pip install 'heedful[docs]'") from None
    print("heedful docs: building the pages, about half a minute", flush=True)
    done = subprocess.run([sys.executable, str(maker)], capture_output=True, text=True)
    if done.returncode:
        raise UsageError(f"the pages could not be built:\n{(done.stdout + done.stderr).strip()}")

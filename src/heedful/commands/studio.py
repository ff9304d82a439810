"""`heedful studio`: the lab as a web page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from .common import UsageError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
OPEN = """\
Listening on {host}: whoever reaches this machine and has the address below can start and stop runs and read
results, as you. The address is sent unencrypted; do this only in a network you trust."""


@dataclass
class Studio:
    """The lab as a web page on this machine: every study and claim, runs with live curves, verdicts."""

    runs: Path = Path("runs")
    """Where results are kept."""
    port: int = 8517
    """Which port; 0 takes any that is free."""
    host: str = "127.0.0.1"
    """Where to listen. Other than this machine itself needs --let-others-in."""
    let_others_in: bool = False
    """Also listen to other machines: who has the printed address can use your computer through it."""
    open: bool = False
    """Open the page in a browser."""

    def run(self, console: Console) -> int:
        if not 0 <= self.port <= 65535:
            raise UsageError(f"--port is {self.port}; it is 0 to 65535")
        if self.host not in LOOPBACK and not self.let_others_in:
            raise UsageError(
                f"--host {self.host} lets other machines in: who has the address could start runs here, "
                f"unencrypted. If that is meant, add --let-others-in"
            )
        try:
            import fastapi  # noqa: F401
            import jinja2  # noqa: F401
            import uvicorn  # noqa: F401

            from ..studio.app import plotly
            from ..studio.server import serve

            plotly()
        except ModuleNotFoundError as error:
            raise UsageError(f"needs {error.name}: pip install 'heedful[studio]'") from None
        if self.host not in LOOPBACK:
            console.print(OPEN.format(host=self.host), style="bold", highlight=False, soft_wrap=True)
        serve(self.runs, self.host, self.port, lambda address: self._tell(address, console))
        return 0

    def _tell(self, address: str, console: Console) -> None:
        print(f"heedful studio: {address}\nCtrl-C ends the page, not the runs it started.", flush=True)
        if self.open:
            import webbrowser

            webbrowser.open(address)

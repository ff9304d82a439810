"""Serve the studio: on this machine unless told otherwise, at an address that has the secret in it."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from pathlib import Path

from .guard import LOOPBACK


def serve(runs: Path, host: str, port: int, tell: Callable[[str], None]) -> None:
    """Until Ctrl-C. `tell` is given the address to open, when the port is ours."""
    import uvicorn

    from .app import create

    listening = bind(host, port)
    port = listening.getsockname()[1]
    token = secrets.token_urlsafe(32)
    others = () if host in LOOPBACK else (host, socket.gethostname(), socket.getfqdn())
    app = create(runs, token=token, port=port, hosts=others)
    shown = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname(), "::1": "[::1]"}.get(host, host)
    tell(f"http://{shown}:{port}/?token={token}")
    # No access log: it would keep the token. Live streams do not hold up the end.
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=1, server_header=False,
        proxy_headers=False, lifespan="off",
    )  # fmt: skip
    with listening:
        uvicorn.Server(config).run(sockets=[listening])


def bind(host: str, port: int) -> socket.socket:
    """A socket on that port; the next one that is free where port is 0."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.socket(family)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(128)  # now, so that whoever opens the address at once waits instead of failing
    except OSError as error:
        raise ValueError(
            f"cannot listen on {host}, port {port}: {error.strerror}. Choose another with --port; "
            f"--port 0 takes any that is free."
        ) from None
    return listening

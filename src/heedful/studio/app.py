"""The application: the pages behind the guard, and the scripts and styles they ask for."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from .. import lab
from .guard import Guard
from .house import House
from .routes import ROUTES

HERE = Path(__file__).parent
LAB = Path(lab.__file__).parent
# The report's look and the view of who listens to whom are the lab's own; plotly's script draws curves.
BORROWED = {
    "report.css": LAB / "report.css",
    "looking.css": LAB / "looking.css",
    "looking.js": LAB / "looking.js",
}


def create(
    runs: str | Path = "runs", *, token: str = "", port: int = 8517, hosts: Collection[str] = ()
) -> FastAPI:
    """The application over a store. `hosts` are names it answers to beside this machine's own."""
    app = FastAPI(title="heedful studio", docs_url=None, redoc_url=None, openapi_url=None)
    house = House(lab.Store(runs))
    names = [f"{host}:{port}" for host in ("127.0.0.1", "localhost", "[::1]", *hosts)]
    app.add_middleware(
        Guard,
        token=token or secrets.token_urlsafe(32),
        hosts=names,
        addresses=bool(hosts),
        cookie=f"heedful-{port}",
        refuse=house.error,
    )
    for name, path in {**BORROWED, "plotly.js": plotly()}.items():
        _lend(app, name, path)
    app.mount("/static", StaticFiles(directory=HERE / "static"), name="static")
    app.add_exception_handler(HTTPException, house.refused)
    app.add_exception_handler(Exception, house.broken)
    for routes in ROUTES:
        app.include_router(routes(house))
    return app


def _lend(app: FastAPI, name: str, path: Path) -> None:
    kind = "text/css" if path.suffix == ".css" else "text/javascript"
    app.add_api_route(f"/static/{name}", lambda: FileResponse(path, media_type=kind))


def plotly() -> Path:
    """plotly's script in its wheel; the package itself is never imported."""
    found = find_spec("plotly")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("No module named 'plotly'", name="plotly")
    return Path(found.origin).parent / "package_data" / "plotly.min.js"

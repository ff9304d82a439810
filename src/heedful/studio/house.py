"""What every page shares: the store, the jobs, the templates, and answers to what is refused or breaks."""

from __future__ import annotations

import io
import re
import threading
import time
from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.exceptions import HTTPException

from .. import __version__, lab
from ..phrases import suggestion
from .guard import HEADERS
from .jobs import Jobs
from .kept import Models
from .live import Live

LARGEST = 64 * 1024  # bytes of a form
TITLES = {404: "Not here", 405: "Not like this", 409: "Not now", 413: "Too large", 422: "Not like this"}


class House:
    """A store and all that is done with it."""

    def __init__(self, store: lab.Store):
        self.store, self.jobs = store, Jobs(store)
        self.live = Live(store, self.jobs)
        self.models = Models(store)
        self.drawing = threading.Lock()  # matplotlib draws one thing at a time
        self.templates = Environment(
            loader=PackageLoader("heedful.studio", "pages"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.templates.globals.update(version=__version__, folder=str(store.folder))
        self.templates.filters.update(duration=duration, day=day, quoted=quoted)

    def show(self, page: str, status: int = 200, **given: Any) -> HTMLResponse:
        return HTMLResponse(self.templates.get_template(page).render(**given), status_code=status)

    def error(self, status: int, title: str, detail: str) -> HTMLResponse:
        return self.show("error.html", status, title=title, detail=detail, here="")

    def refused(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        detail = error.detail if error.detail not in ("Not Found", "Method Not Allowed") else ""
        said = detail or f"There is nothing at {request.url.path} for {request.method}."
        return self.error(error.status_code, TITLES.get(error.status_code, "Refused"), said)

    def broken(self, request: Request, error: Exception) -> Response:
        known = isinstance(error, lab.StoreError)
        said = (
            str(error) if known else f"{type(error).__name__}. The terminal that runs the studio says more."
        )
        answer = self.error(503 if known else 500, "Something broke", said)
        answer.headers.update(HEADERS)  # the guard stands inside of what catches this
        return answer

    def study(self, name: str) -> lab.Study:
        known = lab.studies()
        if name not in known:
            raise HTTPException(404, f"There is no study {name!r}{suggestion(name, known) or '.'}")
        return known[name]

    def run(self, name: str) -> lab.Run:
        """By its whole name: what is not in the store is no address."""
        found = [run for run in self.store.runs() if run.id == name]
        if not found or found[0].study not in lab.studies():
            raise HTTPException(404, f"{self.store.folder} holds no run {name!r}.")
        return found[0]

    def png(self, draw: Callable) -> Response:
        with self.drawing:
            try:
                figure = draw()
                if figure is None:
                    raise HTTPException(404, "Numbers say it all: there is no figure.")
                data = io.BytesIO()
                figure.savefig(data, format="png")
            except HTTPException:
                raise
            except Exception as error:  # a study draws what it likes, and may have too little to draw yet
                raise HTTPException(404, f"The figure could not be drawn: {error}") from error
        return Response(data.getvalue(), media_type="image/png")


async def body(request: Request, most: int, what: str) -> bytes:
    """All that was sent, read no further than `most` bytes."""
    found = bytearray()
    async for part in request.stream():
        found += part
        if len(found) > most:
            raise HTTPException(413, f"{what} has {most // 1024} kB at most.")
    return bytes(found)


async def sent(request: Request) -> dict[str, str]:
    """The fields of a form."""
    found = await body(request, LARGEST, "A form")
    try:
        text = found.decode()
        return dict(parse_qsl(text, strict_parsing=bool(text), keep_blank_values=True, max_num_fields=200))
    except ValueError:
        raise HTTPException(422, "That is no form.") from None


Sent = Annotated[dict[str, str], Depends(sent)]


def go(address: str) -> RedirectResponse:
    return RedirectResponse(address, status_code=303)


def duration(seconds: float | None) -> str:
    """Seconds in words, as coarse as one would say it."""
    if seconds is None:
        return ""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(1, round(seconds))} s"


def quoted(text: str) -> Markup:
    """What stands in backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def day(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))

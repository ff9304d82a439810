"""The studio's pages: what is at which address, and what each shows."""

from __future__ import annotations

import asyncio
import io
import json
import secrets
import threading
import time
from collections.abc import AsyncIterator, Collection, Iterator
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qsl

from anyio import to_thread
from fastapi import Depends, FastAPI, Request
from fastapi.responses import (
    FileResponse,
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from .. import __version__, claims, lab
from ..claims.page import summary
from ..lab.compare import compare
from ..lab.report import verdict
from ..phrases import suggestion
from . import board, forms, looking, writing
from .guard import HEADERS, Guard
from .jobs import Jobs
from .kept import Models
from .live import Live, Moment, state

LARGEST = 64 * 1024  # bytes of a form
TICK = 1.0  # seconds between two looks at a run
QUIET = 15.0  # seconds without news after which a live stream says that it is still there
HERE = Path(__file__).parent


def create(
    runs: str | Path = "runs", *, token: str = "", port: int = 8517, hosts: Collection[str] = ()
) -> FastAPI:
    """The application over a store. `hosts` are names it answers to beside this machine's own."""
    store = lab.Store(runs)
    app = FastAPI(title="heedful studio", docs_url=None, redoc_url=None, openapi_url=None)
    pages = _Pages(store)
    names = [f"{host}:{port}" for host in ("127.0.0.1", "localhost", "[::1]", *hosts)]
    app.add_middleware(
        Guard,
        token=token or secrets.token_urlsafe(32),
        hosts=names,
        addresses=bool(hosts),
        cookie=f"heedful-{port}",
        refuse=pages.error,
    )
    look = Path(lab.__file__).with_name("report.css")  # the studio looks as the report does
    app.add_api_route("/static/report.css", lambda: FileResponse(look, media_type="text/css"))
    app.mount("/static", StaticFiles(directory=HERE / "static"), name="static")
    app.add_exception_handler(HTTPException, pages.refused)
    app.add_exception_handler(Exception, pages.broken)
    _board(app, pages)
    _studies(app, pages)
    _runs(app, pages)
    _claims(app, pages)
    _doctor(app, pages)
    _generate(app, pages)
    _attention(app, pages)
    return app


class _Pages:
    """What every page needs: the store, the jobs, the templates."""

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
        self.templates.filters.update(duration=duration, day=day)

    def show(self, page: str, status: int = 200, **given: Any) -> HTMLResponse:
        return HTMLResponse(self.templates.get_template(page).render(**given), status_code=status)

    def error(self, status: int, title: str, detail: str) -> HTMLResponse:
        return self.show("error.html", status, title=title, detail=detail, here="")

    def refused(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        titles = {
            404: "Not here",
            405: "Not like this",
            409: "Not now",
            413: "Too large",
            422: "Not like this",
        }
        detail = error.detail if error.detail not in ("Not Found", "Method Not Allowed") else ""
        said = detail or f"There is nothing at {request.url.path} for {request.method}."
        return self.error(error.status_code, titles.get(error.status_code, "Refused"), said)

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

    def png(self, draw) -> Response:
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


async def sent(request: Request) -> dict[str, str]:
    """The fields of a form."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LARGEST:
            raise HTTPException(413, f"A form has {LARGEST // 1024} kB at most.")
    try:
        return dict(
            parse_qsl(body.decode(), strict_parsing=bool(body), keep_blank_values=True, max_num_fields=200)
        )
    except ValueError:
        raise HTTPException(422, "That is no form.") from None


Sent = Annotated[dict[str, str], Depends(sent)]


def _go(address: str) -> RedirectResponse:
    return RedirectResponse(address, status_code=303)


def _board(app: FastAPI, pages: _Pages) -> None:
    @app.get("/")
    def show_board() -> Response:
        kept = board.verdicts(pages.store.folder)
        return pages.show(
            "board.html",
            here="board",
            studies=board.study_lines(pages.store, pages.jobs),
            groups=board.claim_groups(pages.store.folder),
            summary=summary(list(kept.values())) if kept else "",
        )


def _studies(app: FastAPI, pages: _Pages) -> None:
    def page(study: lab.Study, given: dict[str, str], problem: str = "") -> Response:
        return pages.show(
            "study.html",
            422 if problem else 200,
            here="board",
            study=study,
            fields=forms.form(study),
            devices=forms.devices(),
            seeds=getattr(study.settings, "seeds", {"quick": 3, "full": 10}),
            about=_about(study),
            runs=board.run_lines(pages.store, pages.jobs, study.name),
            given=given,
            problem=problem,
        )

    @app.get("/studies/{name}")
    def show_study(name: str) -> Response:
        return page(pages.study(name), {"profile": "quick"})

    @app.post("/studies/{name}/run")
    def start(name: str, given: Sent) -> Response:
        study = pages.study(name)
        try:
            asked = forms.read(study, given)
            job = pages.jobs.run(
                name, asked.profile, asked.settings, asked.seeds, device=asked.device, again=asked.again
            )
        except (ValueError, TypeError) as error:
            return page(study, given, str(error))
        return _go(f"/jobs/{job.id}")

    @app.get("/jobs/{name}")
    def show_job(name: str) -> Response:
        """A job until it has a run to show."""
        job = pages.jobs.find(name)
        if job is None:
            raise HTTPException(404, f"There is no job {name!r}.")
        alive = job.alive  # asked first: it may begin its run and end while we look for it
        run = pages.jobs.run_of(job)
        if run is not None:
            return _go(f"/runs/{run.id}")
        if job.kind == "claims" and not alive and not (said := pages.jobs.said(job)):
            return _go(f"/claims/{job.subject}" if job.subject and " " not in job.subject else "/claims")
        said = pages.jobs.said(job)
        waited = time.time() - job.started
        return pages.show("job.html", here="board", job=job, alive=alive, said=said, waited=waited)


def _runs(app: FastAPI, pages: _Pages) -> None:
    @app.get("/runs/{name}")
    def show_run(name: str) -> Response:
        run = pages.run(name)
        moment = Moment(run.study, run, pages.store)
        others = [other for other in pages.store.runs(run.study) if other.id != run.id]
        job = pages.jobs.of(run)
        return pages.show(
            "run.html",
            here="board",
            study=moment.study,
            run=run,
            ours=job is not None,
            others=others,
            now=pages.live.snapshot(run),
            verdict=verdict(moment) if moment.count("done") else "",
            measured=moment.measured(),
            remarks=moment.remarks() if moment.count("done") else [],
            said=pages.jobs.said(job) if job is not None and not job.alive and run.finished is None else "",
        )

    @app.get("/runs/{name}/events")
    async def events(name: str, request: Request) -> Response:
        run = await to_thread.run_sync(pages.run, name)
        return StreamingResponse(_stream(pages.live, run, request), media_type="text/event-stream")

    @app.post("/runs/{name}/stop")
    def stop(name: str) -> Response:
        run = pages.run(name)
        try:
            pages.jobs.stop(run)
        except ValueError as error:
            raise HTTPException(409, str(error)) from None
        return _go(f"/runs/{run.id}")

    @app.post("/runs/{name}/resume")
    def resume(name: str) -> Response:
        run = pages.run(name)
        moment = Moment(run.study, run, pages.store)
        if state(moment, pages.jobs) == "running":
            raise HTTPException(409, f"{run.id} is at work already.")
        try:
            job = pages.jobs.resume(run)
        except ValueError as error:
            raise HTTPException(409, str(error)) from None
        return _go(f"/jobs/{job.id}")

    @app.get("/runs/{name}/figure.png")
    def figure(name: str) -> Response:
        run = pages.run(name)
        job = pages.jobs.of(run)
        places = [pages.store.folder / run.id / "figure.png"]
        places += [pages.jobs.folder / f"{job.id}.png"] if job else []
        for drawn in places:
            if drawn.is_file() and not pages.jobs.alive(run):  # one at work may be drawing it
                return FileResponse(drawn, media_type="image/png")
        return pages.png(Moment(run.study, run, pages.store).figure)

    @app.get("/compare")
    def show_comparison(first: str, second: str) -> Response:
        one, two = pages.run(first), pages.run(second)
        rows, problem = [], ""
        try:
            rows = compare(pages.store, one.id, two.id)
        except ValueError as error:
            problem = str(error)
        shown = [
            {name: row[name] for name in ("variant", "metric", "first", "second", "says")}
            | {"p, corrected": "–" if row["p"] is None else f"{row['p']:.2g}", "seeds": row["seeds"]}
            for row in rows
        ]
        return pages.show("compare.html", here="board", one=one, two=two, rows=shown, problem=problem)


async def _stream(live: Live, run: lab.Run, request: Request) -> AsyncIterator[str]:
    """Server-sent events: what a run looks like whenever that changes, until it is over."""
    before, quiet = "", time.monotonic()
    while not await request.is_disconnected():
        found = await to_thread.run_sync(live.snapshot, run)
        text = json.dumps(found, allow_nan=False)
        if text != before:
            yield f"data: {text}\n\n"
            before, quiet = text, time.monotonic()
        if found["state"] != "running":
            yield "event: over\ndata: {}\n\n"
            return
        if time.monotonic() - quiet > QUIET:
            yield ": still here\n\n"
            quiet = time.monotonic()
        await asyncio.sleep(TICK)


def _claims(app: FastAPI, pages: _Pages) -> None:
    def claim(id: str) -> claims.Claim:
        known = claims.claims()
        if id not in known:
            raise HTTPException(404, f"There is no claim {id!r}{suggestion(id, known) or '.'}")
        return known[id]

    @app.get("/claims")
    def show_claims() -> Response:
        kept = board.verdicts(pages.store.folder)
        return pages.show(
            "claims.html",
            here="claims",
            groups=board.claim_groups(pages.store.folder),
            summary=summary(list(kept.values())) if kept else "",
        )

    @app.get("/claims/{id}")
    def show_claim(id: str) -> Response:
        found = claim(id)
        kept = board.verdicts(pages.store.folder).get(id)
        evidence = [] if kept is None else [each for each in kept.evidence if each.kind != "curve"]
        drawn = kept is not None and _drawn(found, kept)
        kind = board.KINDS.get(kept.verdict, "open") if kept else ""
        return pages.show(
            "claim.html", here="claims", claim=found, verdict=kept, evidence=evidence, drawn=drawn, kind=kind
        )

    @app.get("/claims/{id}/figure.png")
    def claim_figure(id: str) -> Response:
        kept = board.verdicts(pages.store.folder).get(claim(id).id)
        if kept is None:
            raise HTTPException(404, f"{id} was not measured yet.")
        return pages.png(kept.figure)

    @app.post("/claims/check")
    def check_all() -> Response:
        return _checking([])

    @app.post("/claims/{id}/check")
    def check(id: str) -> Response:
        return _checking([claim(id).id])

    def _checking(ids: list[str]) -> Response:
        try:
            return _go(f"/jobs/{pages.jobs.claims(ids).id}")
        except ValueError as error:
            raise HTTPException(409, str(error)) from None


def _drawn(claim: claims.Claim, kept: claims.Verdict) -> bool:
    return claim.draw is not None or any(each.kind in ("curve", "exponent") for each in kept.evidence)


def _doctor(app: FastAPI, pages: _Pages) -> None:
    @app.get("/doctor")
    def show_reports() -> Response:
        return pages.show("doctor.html", here="doctor", reports=board.reports(pages.store.folder))

    @app.get("/doctor/{name}")
    def show_report(name: str) -> Response:
        known = board.reports(pages.store.folder)
        if known.get(name) is None:
            raise HTTPException(404, f"There is no report {name!r} in {pages.store.folder}/doctor.")
        return pages.show("report.html", here="doctor", name=name, report=known[name])


def _generate(app: FastAPI, pages: _Pages) -> None:
    @app.get("/generate")
    def show_generate() -> Response:
        return pages.show(
            "generate.html", here="generate", models=pages.models.offered("text"), most=writing.LONGEST
        )

    @app.get("/generate/events")
    def generate(request: Request) -> Response:
        """Server-sent events: a token each; then what was copied; or `problem`."""
        given = dict(request.query_params)

        def tell() -> Iterator[str]:
            try:
                wish = writing.Wish.read(given)
                for record in writing.write(pages.models.load(given.get("model", ""), "text"), wish):
                    yield f"data: {json.dumps(record, allow_nan=False)}\n\n"
                yield "event: over\ndata: {}\n\n"
            except (ValueError, ImportError) as error:
                yield f"event: problem\ndata: {json.dumps(str(error))}\n\n"

        return StreamingResponse(tell(), media_type="text/event-stream")


def _attention(app: FastAPI, pages: _Pages) -> None:
    def seen(given: dict[str, str]) -> tuple[looking.View, looking.Seen]:
        try:
            view = looking.View.read(given)
            found = pages.models.load(given["model"], "text") if given.get("model") else None
            return view, looking.look(view, found)
        except (ValueError, TypeError, ImportError) as error:
            raise HTTPException(422, str(error)) from None

    @app.get("/attention")
    def show_attention(request: Request) -> Response:
        given = dict(request.query_params)
        return pages.show(
            "attention.html",
            here="attention",
            models=pages.models.offered("text"),
            similarities=looking.SIMILARITIES,
            neighbors=looking.NEIGHBORS,
            view=looking.View(),
            most=looking.MOST,
            given=given,
        )

    @app.get("/attention/picture")
    def show_picture(request: Request) -> Response:
        page = seen(dict(request.query_params))[1].page()
        headers = {"Content-Security-Policy": looking.policy(page), "X-Frame-Options": "SAMEORIGIN"}
        return HTMLResponse(page, headers=headers)

    @app.get("/attention/plan")
    def show_plan(request: Request) -> Response:
        try:
            view, found = seen(dict(request.query_params))
            return PlainTextResponse(str(found.plan(view.length)))
        except HTTPException as error:
            return PlainTextResponse(error.detail, status_code=422)
        except (ValueError, TypeError) as error:
            return PlainTextResponse(str(error), status_code=422)


def _about(study: lab.Study) -> str:
    """What a study's docstring tells; a dataclass without one has its signature there."""
    text = study.settings.__doc__ or ""
    return "" if text.startswith(f"{study.settings.__name__}(") else " ".join(text.split())


def duration(seconds: float | None) -> str:
    """Seconds in words, as coarse as one would say it."""
    if seconds is None:
        return ""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(1, round(seconds))} s"


def day(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))

"""A run: watched, stopped, resumed, drawn, compared with another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from anyio import to_thread
from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from ... import lab
from ...lab.compare import compare
from ...lab.report import verdict
from ..house import House, go
from ..live import Live, Moment, state

TICK = 1.0  # seconds between two looks at a run
QUIET = 15.0  # seconds without news after which a live stream says that it is still there


def routes(house: House) -> APIRouter:
    router = APIRouter()

    @router.get("/runs/{name}")
    def show(name: str) -> Response:
        run = house.run(name)
        moment = Moment(run.study, run, house.store)
        job = house.jobs.of(run)
        return house.show(
            "run.html",
            here="board",
            study=moment.study,
            run=run,
            ours=job is not None,
            uses=house.models.uses(run),
            others=[other for other in house.store.runs(run.study) if other.id != run.id],
            now=house.live.snapshot(run),
            verdict=verdict(moment) if moment.count("done") else "",
            measured=moment.measured(),
            remarks=moment.remarks() if moment.count("done") else [],
            said=house.jobs.said(job) if job is not None and not job.alive and run.finished is None else "",
        )

    @router.get("/runs/{name}/events")
    async def events(name: str, request: Request) -> Response:
        run = await to_thread.run_sync(house.run, name)
        return StreamingResponse(_stream(house.live, run, request), media_type="text/event-stream")

    @router.post("/runs/{name}/stop")
    def stop(name: str) -> Response:
        run = house.run(name)
        try:
            house.jobs.stop(run)
        except ValueError as error:
            raise HTTPException(409, str(error)) from None
        return go(f"/runs/{run.id}")

    @router.post("/runs/{name}/resume")
    def resume(name: str) -> Response:
        run = house.run(name)
        moment = Moment(run.study, run, house.store)
        if state(moment, house.jobs) == "running":
            raise HTTPException(409, f"{run.id} is at work already.")
        try:
            job = house.jobs.resume(run)
        except ValueError as error:
            raise HTTPException(409, str(error)) from None
        return go(f"/jobs/{job.id}")

    @router.get("/runs/{name}/figure.png")
    def figure(name: str) -> Response:
        run = house.run(name)
        job = house.jobs.of(run)
        places = [house.store.folder / run.id / "figure.png"]
        places += [house.jobs.folder / f"{job.id}.png"] if job else []
        for drawn in places:
            if drawn.is_file() and not house.jobs.alive(run):  # one at work may be drawing it
                return FileResponse(drawn, media_type="image/png")
        return house.png(Moment(run.study, run, house.store).figure)

    @router.get("/compare")
    def show_comparison(first: str, second: str) -> Response:
        one, two = house.run(first), house.run(second)
        rows, problem = [], ""
        try:
            rows = compare(house.store, one.id, two.id)
        except ValueError as error:
            problem = str(error)
        shown = [
            {name: row[name] for name in ("variant", "metric", "first", "second", "says")}
            | {"p, corrected": "–" if row["p"] is None else f"{row['p']:.2g}", "seeds": row["seeds"]}
            for row in rows
        ]
        return house.show("compare.html", here="board", one=one, two=two, rows=shown, problem=problem)

    return router


async def _stream(live: Live, run: lab.Run, request: Request) -> AsyncIterator[str]:
    """Server-sent events: what a run looks like whenever that changes, until it is over."""
    before, quiet = "", time.monotonic()
    while not await request.is_disconnected():
        now, text = await live.latest(run)
        if text != before:
            yield f"data: {text}\n\n"
            before, quiet = text, time.monotonic()
        if now != "running":
            yield "event: over\ndata: {}\n\n"
            return
        if time.monotonic() - quiet > QUIET:
            yield ": still here\n\n"
            quiet = time.monotonic()
        await asyncio.sleep(TICK)

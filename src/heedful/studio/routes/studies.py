"""A study: its form, its runs, and the jobs that begin them."""

from __future__ import annotations

import time

from fastapi import APIRouter
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from ... import lab
from .. import board, forms
from ..house import House, Sent, go


def routes(house: House) -> APIRouter:
    router = APIRouter()

    def page(study: lab.Study, given: dict[str, str], problem: str = "") -> Response:
        return house.show(
            "study.html",
            422 if problem else 200,
            here="board",
            study=study,
            fields=forms.form(study),
            devices=forms.devices(),
            seeds=getattr(study.settings, "seeds", {"quick": 3, "full": 10}),
            about=_about(study),
            runs=board.run_lines(house.store, house.jobs, study.name),
            given=given,
            problem=problem,
        )

    @router.get("/studies/{name}")
    def show(name: str) -> Response:
        return page(house.study(name), {"profile": "quick"})

    @router.post("/studies/{name}/run")
    def start(name: str, given: Sent) -> Response:
        study = house.study(name)
        try:
            asked = forms.read(study, given)
            job = house.jobs.run(
                name, asked.profile, asked.settings, asked.seeds, device=asked.device, again=asked.again
            )
        except (ValueError, TypeError) as error:
            return page(study, given, str(error))
        return go(f"/jobs/{job.id}")

    @router.get("/jobs/{name}")
    def show_job(name: str) -> Response:
        """A job until it has a run to show."""
        job = house.jobs.find(name)
        if job is None:
            raise HTTPException(404, f"There is no job {name!r}.")
        alive = job.alive  # asked first: it may begin its run and end while we look for it
        run = house.jobs.run_of(job)
        if run is not None:
            return go(f"/runs/{run.id}")
        said = house.jobs.said(job)
        if job.kind == "claims" and not alive and not said:
            return go(f"/claims/{job.subject}" if job.subject and " " not in job.subject else "/claims")
        waited = time.time() - job.started
        return house.show("job.html", here="board", job=job, alive=alive, said=said, waited=waited)

    return router


def _about(study: lab.Study) -> str:
    """What a study's docstring tells; a dataclass without one has its signature there."""
    text = study.settings.__doc__ or ""
    return "" if text.startswith(f"{study.settings.__name__}(") else " ".join(text.split())

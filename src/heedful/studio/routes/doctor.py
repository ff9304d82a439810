"""The doctor's reports, as they are kept: no page runs a script."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from .. import board
from ..house import House


def routes(house: House) -> APIRouter:
    router = APIRouter()

    @router.get("/doctor")
    def show_all() -> Response:
        return house.show("doctor.html", here="doctor", reports=board.reports(house.store.folder))

    @router.get("/doctor/{name}")
    def show(name: str) -> Response:
        known = board.reports(house.store.folder)
        if known.get(name) is None:
            raise HTTPException(404, f"There is no report {name!r} in {house.store.folder}/doctor.")
        return house.show("report.html", here="doctor", name=name, report=known[name])

    return router

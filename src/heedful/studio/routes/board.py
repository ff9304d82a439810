"""The board: every study and claim in a line."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from ...claims.page import summary
from .. import board
from ..house import House


def routes(house: House) -> APIRouter:
    router = APIRouter()

    @router.get("/")
    def show() -> Response:
        kept = board.verdicts(house.store.folder)
        return house.show(
            "board.html",
            here="board",
            studies=board.study_lines(house.store, house.jobs),
            groups=board.claim_groups(house.store.folder),
            summary=summary(list(kept.values())) if kept else "",
        )

    return router

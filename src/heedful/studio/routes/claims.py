"""Claims: statement, evidence, figure, corrected statement; and measuring them."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from ... import claims
from ...claims.page import summary
from ...phrases import suggestion
from .. import board
from ..house import House, go


def routes(house: House) -> APIRouter:
    router = APIRouter()

    @router.get("/claims")
    def show_all() -> Response:
        kept = board.verdicts(house.store.folder)
        return house.show(
            "claims.html",
            here="claims",
            groups=board.claim_groups(house.store.folder),
            summary=summary(list(kept.values())) if kept else "",
        )

    @router.get("/claims/{id}")
    def show(id: str) -> Response:
        found = _claim(id)
        kept = board.verdicts(house.store.folder).get(id)
        evidence = [] if kept is None else [each for each in kept.evidence if each.kind != "curve"]
        drawn = kept is not None and _drawn(found, kept)
        kind = board.KINDS.get(kept.verdict, "open") if kept else ""
        return house.show(
            "claim.html", here="claims", claim=found, verdict=kept, evidence=evidence, drawn=drawn, kind=kind
        )

    @router.get("/claims/{id}/figure.png")
    def figure(id: str) -> Response:
        kept = board.verdicts(house.store.folder).get(_claim(id).id)
        if kept is None:
            raise HTTPException(404, f"{id} was not measured yet.")
        return house.png(kept.figure)

    @router.post("/claims/check")
    def check_all() -> Response:
        return _checking([])

    @router.post("/claims/{id}/check")
    def check(id: str) -> Response:
        return _checking([_claim(id).id])

    def _checking(ids: list[str]) -> Response:
        try:
            return go(f"/jobs/{house.jobs.claims(ids).id}")
        except ValueError as error:
            raise HTTPException(409, str(error)) from None

    return router


def _claim(id: str) -> claims.Claim:
    known = claims.claims()
    if id not in known:
        raise HTTPException(404, f"There is no claim {id!r}{suggestion(id, known) or '.'}")
    return known[id]


def _drawn(claim: claims.Claim, kept: claims.Verdict) -> bool:
    return claim.draw is not None or any(each.kind in ("curve", "exponent") for each in kept.evidence)

"""Who listens to whom: the page, what it shows, and pictures that are sent to it."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from .. import looking
from ..house import House, body
from ..looking import graphs, pictures, uploads


def routes(house: House) -> APIRouter:
    router = APIRouter()
    sent = looking.Uploads()

    @router.get("/attention")
    def show(request: Request) -> Response:
        return house.show(
            "attention.html",
            here="attention",
            models=house.models.watchable(),
            similarities=looking.SIMILARITIES,
            neighbors=looking.NEIGHBORS,
            pictures=pictures.at_hand(),
            graphs=graphs.BUILT_IN,
            view=looking.View(),
            most=looking.view.MOST,
            largest=uploads.LARGEST,
            given=dict(request.query_params),
        )

    @router.get("/attention/look")
    def look(request: Request) -> Response:
        """What there is to see, and the plan, as JSON; or what is wrong with the question."""
        given = dict(request.query_params)
        who = given.get("who", "words")
        try:
            if who in looking.PLAIN:
                found, kind = None, looking.PLAIN[who]
            else:
                found, kind = house.models.watched(who)
            view = looking.View.read(given, kind)
            seen = looking.look(view, found, sent)
            plan = seen.call.plan(view.length if kind == "text" else None)
        except (ValueError, TypeError, ImportError, OSError) as error:
            return JSONResponse({"problem": str(error)}, status_code=422)
        return JSONResponse({**seen.view(), "plan": str(plan)})

    @router.post("/attention/pictures")
    async def take(request: Request) -> Response:
        """Keep a picture, the body as it is; its name."""
        try:
            content = await body(request, uploads.LARGEST, "A picture")
            return JSONResponse({"picture": await run_in_threadpool(sent.take, content)})
        except HTTPException as error:
            return JSONResponse({"problem": error.detail}, status_code=error.status_code)
        except ValueError as error:
            return JSONResponse({"problem": str(error)}, status_code=422)

    return router

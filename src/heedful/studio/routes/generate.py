"""Text from a trained model, token by token."""

from __future__ import annotations

import json
from collections.abc import Iterator

from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse

from .. import writing
from ..house import House


def routes(house: House) -> APIRouter:
    router = APIRouter()

    @router.get("/generate")
    def show(model: str = "") -> Response:
        return house.show(
            "generate.html",
            here="generate",
            models=house.models.offered("text"),
            chosen=model,
            most=writing.LONGEST,
        )

    @router.get("/generate/events")
    def generate(request: Request) -> Response:
        """Server-sent events: a token each; then what was copied; or `problem`."""
        given = dict(request.query_params)

        def tell() -> Iterator[str]:
            try:
                wish = writing.Wish.read(given)
                for record in writing.write(house.models.load(given.get("model", ""), "text"), wish):
                    yield f"data: {json.dumps(record, allow_nan=False)}\n\n"
                yield "event: over\ndata: {}\n\n"
            except (ValueError, ImportError) as error:
                yield f"event: problem\ndata: {json.dumps(str(error))}\n\n"

        return StreamingResponse(tell(), media_type="text/event-stream")

    return router

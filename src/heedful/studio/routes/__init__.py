"""What is at which address: a file a page, each with `routes(house)`."""

from . import attention, board, claims, doctor, generate, runs, studies

ROUTES = tuple(page.routes for page in (board, studies, runs, claims, doctor, generate, attention))

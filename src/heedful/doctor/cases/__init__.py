"""Three scripts with something wrong in each, as a reader would write them; run, never imported."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent
CASES = {name: _FOLDER / f"{name}.py" for name in ("depth", "accumulation", "diverging")}

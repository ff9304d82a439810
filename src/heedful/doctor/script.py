"""A stranger's script under observation: run as it is, in a process of its own, and always reported on."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .report import Report
from .source import apply

PROOFS = 3  # patched copies run at most
INTERRUPTED = "KeyboardInterrupt"


class NotRun(Exception):
    """The script could not be run far enough to say anything."""


def diagnose(
    script: str | os.PathLike,
    arguments: Sequence[str] = (),
    *,
    steps: int | None = None,
    tier: str = "normal",
    prove: bool = True,
    timeout: float | None = None,
    quiet: bool = False,
) -> Report:
    """Run a script in a new Python, watched, for so many optimizer steps; the report.

    With `prove`, the script is run again with the patch of each finding that has one (three at most), from
    memory, and measured again. `quiet` sends what the script prints to the standard error.
    """
    path = Path(script)
    if not path.is_file():
        raise NotRun(f"there is no script {str(path)!r}")
    report = _child(path, arguments, steps, tier, None, timeout, quiet)
    report.subject = str(path)
    if prove and report.raised != INTERRUPTED:
        for found in [entry for entry in report.findings if entry.patch and entry.severity != "note"][
            :PROOFS
        ]:
            text = apply(path.read_text(encoding="utf-8"), found.patch)
            try:
                after = _child(path, arguments, steps, tier, text, timeout, True)
            except NotRun as error:
                found.proof = f"not proved: the patched copy could not be run ({error})"
                continue
            except KeyboardInterrupt:
                found.proof = "not proved: it was interrupted"
                break
            if found.name in after or worse(report, after):
                found.patch = ""  # what does not help is not shown
                continue
            told = proof(found.name, report, after)
            found.proof = f"{told}. {found.proof[0].upper()}{found.proof[1:]}" if found.proof else told
    return report


def proof(name: str, before: Report, after: Report) -> str:
    """What the patch changed, in numbers."""
    one, other = before[name].measured, after.measured.get(name)
    said = [
        f"with the patch it is gone: {one:.3g} → {other:.3g}"
        if other is not None and one is not None
        else "with the patch it is gone"
    ]
    if before.losses and after.losses:
        said.append(f"last loss {before.losses[-1]:.3g} → {after.losses[-1]:.3g}")
    return "; ".join(said)


def worse(before: Report, after: Report) -> bool:
    """Whether the patched run raises, or ends ten times further out than anything before it."""
    if after.raised and not before.raised:
        return True
    known = [abs(value) for value in before.losses + after.losses[:1] if math.isfinite(value)]
    end = abs(after.losses[-1]) if after.losses else 0.0
    return not math.isfinite(end) or (bool(known) and end > 10 * max(known))


def _child(path, arguments, steps, tier, text, timeout, quiet) -> Report:
    with tempfile.TemporaryDirectory(prefix="heedful-doctor-") as folder:
        order, answer = Path(folder) / "order.json", Path(folder) / "answer.json"
        order.write_text(
            json.dumps(
                {
                    "script": str(path),
                    "arguments": list(arguments),
                    "steps": steps,
                    "tier": tier,
                    "text": text,
                    "answer": str(answer),
                }
            ),
            encoding="utf-8",
        )
        command = [sys.executable, "-m", "heedful.doctor.script", str(order)]
        out: Any = subprocess.DEVNULL if text is not None else sys.stderr if quiet else None
        error: Any = subprocess.DEVNULL if text is not None else None
        if out is sys.stderr:
            with contextlib.suppress(Exception):
                out = sys.stderr.fileno()
        try:
            status = _run(command, out, error, timeout, patient=text is None)
        except subprocess.TimeoutExpired:
            raise NotRun(f"it did not end within {timeout:g} s; ask for fewer --steps") from None
        if not answer.exists():
            raise NotRun(f"its process ended with status {status} and left no report")
        found = json.loads(answer.read_text(encoding="utf-8"))
    if "failed" in found:
        raise NotRun(found["failed"])
    return Report.from_dict(found)


def _run(command: list[str], out: Any, error: Any, timeout: float | None, patient: bool) -> int:
    """Run, never longer than this process does; `patient` waits for the report of what Ctrl-C ended."""

    def end(*_):
        raise SystemExit(128 + signal.SIGTERM)

    process = subprocess.Popen(command, stdout=out, stderr=error)
    before = None
    with contextlib.suppress(ValueError):  # in another thread than the first
        before = signal.signal(signal.SIGTERM, end)
    try:
        try:
            return process.wait(timeout)
        except KeyboardInterrupt:
            if not patient:
                raise
            return process.wait(timeout)  # a terminal's Ctrl-C reaches the script as well
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def watched(
    path: str, text: str | None, arguments: Sequence[str], steps: int | None, tier: str, show: bool = True
) -> dict[str, Any]:
    """Run the script here and now; its report as a dictionary, or why there is none."""
    from . import patches
    from .watching import Enough, Watch

    full = os.path.abspath(path)
    if text is None:
        text = Path(path).read_text(encoding="utf-8")
    patches.TEXTS[full] = text
    try:
        code = compile(text, full, "exec")
    except SyntaxError as error:
        return {"failed": f"{error.msg} (line {error.lineno})"}
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.path.dirname(full))
    main = type(sys)("__main__")
    main.__dict__.update(__file__=full, __builtins__=__builtins__)
    before, sys.modules["__main__"] = sys.modules["__main__"], main
    watch = Watch(tier=tier, steps=steps)
    try:
        with watch:
            exec(code, main.__dict__)
        watch.facts.whole = True
    except Enough:
        pass
    except SystemExit as stop:
        if stop.code not in (None, 0):
            watch.facts.raised = f"SystemExit: {stop.code}"
    except KeyboardInterrupt:
        watch.facts.raised = INTERRUPTED
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the report is told, however often it is pressed
    except BaseException as error:
        watch.facts.raised = f"{type(error).__name__}: {error}".splitlines()[0]
        if show:
            traceback.print_exception(error)
    finally:
        sys.modules["__main__"] = before
        watch.looking = False
    report = watch.report()
    if watch.facts.raised and not watch.facts.losses and not watch.facts.steps:
        return {"failed": f"it raised {watch.facts.raised} before its first step"}
    return report.to_dict()


def main(order_file: str) -> None:
    order = json.loads(Path(order_file).read_text(encoding="utf-8"))
    found = watched(order["script"], order["text"], order["arguments"], order["steps"], order["tier"])
    Path(order["answer"]).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])

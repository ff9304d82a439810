"""Where in somebody's file something happened, and patches to it as text."""

from __future__ import annotations

import ast
import difflib
import functools
import importlib.util
import os
import sys
import sysconfig

from .findings import Place

_OURS = os.path.dirname(os.path.abspath(__file__))
_PYTHON = sysconfig.get_paths()["stdlib"] + os.sep
_SITE = os.sep + "site-packages" + os.sep


_KINDS: dict[str, str] = {}


def _kind(file: str) -> str:
    """Whose a file is: ours (the doctor's, torch's, Python's), a library's, or theirs."""
    if file.startswith((_torch(), _PYTHON, "<frozen")) or _ours(file):
        return "library" if _SITE in file and not file.startswith(_torch()) else "ours"
    return "library" if _SITE in file else "theirs"


def _ours(file: str) -> bool:
    return file.startswith(_OURS + os.sep) and not file.startswith(_OURS + os.sep + "cases")


@functools.lru_cache(maxsize=1)
def _torch() -> str:
    found = importlib.util.find_spec("torch")
    return os.path.dirname(found.origin or "") + os.sep if found else os.sep


def caller() -> tuple[str, int]:
    """File and line that called torch: the nearest frame in no library, else the nearest outside torch."""
    frame = sys._getframe(1)
    nearest = None
    while frame is not None:
        file = frame.f_code.co_filename
        kind = _KINDS.get(file)
        if kind is None:
            kind = _KINDS[file] = _kind(file)
        if kind == "theirs":
            return file, frame.f_lineno
        if kind == "library" and nearest is None:
            nearest = file, frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return nearest or ("", 0)


def _short(file: str) -> str:
    """A path from here, where it lies below."""
    near = os.path.relpath(file)
    return file if near.startswith(os.pardir) else near


def variable(thing: object) -> str:
    """What the nearest frame in no library calls a thing: `model`, `self.model`; "" where it has no name."""
    frame = sys._getframe(1)
    while frame is not None and _KINDS.get(frame.f_code.co_filename) != "theirs":
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None:
        return ""
    for scope in (frame.f_locals, frame.f_globals):
        for name, entry in list(scope.items()):
            if entry is thing and not name.startswith("_"):
                return name
    inner = frame.f_locals.get("self")
    if inner is thing:
        return "self"
    held = {**getattr(inner, "__dict__", {}), **getattr(inner, "_modules", {})}
    return next((f"self.{name}" for name, entry in held.items() if entry is thing), "")


def in_library(name: str) -> bool:
    """Whether a function of this name is running above us."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == name:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


class Source:
    """The text of a file and the statement at each line, for patches that are diffs."""

    def __init__(self, file: str, text: str | None = None):
        self.file = file
        if text is None:
            try:
                with open(file, encoding="utf-8") as opened:
                    text = opened.read()
            except (OSError, UnicodeDecodeError):
                text = ""
        self.text = text
        self.lines = text.splitlines(keepends=True)
        try:
            self.tree: ast.AST | None = ast.parse(text)
        except (SyntaxError, ValueError):
            self.tree = None

    def place(self, line: int) -> Place:
        text = self.lines[line - 1].strip() if 0 < line <= len(self.lines) else ""
        return Place(_short(self.file), line, text)

    def statement(self, line: int) -> ast.stmt | None:
        """The innermost statement that covers a line."""
        nodes = ast.walk(self.tree) if self.tree else ()
        statements = [node for node in nodes if isinstance(node, ast.stmt)]
        covering = [node for node in statements if node.lineno <= line <= (node.end_lineno or node.lineno)]
        return max(covering, key=lambda node: node.lineno, default=None)

    def call(self, line: int, *attributes: str) -> ast.Call | None:
        """The call of a method of one of these names on a line."""
        for node in ast.walk(self.tree) if self.tree else ():
            if (
                isinstance(node, ast.Call)
                and node.lineno <= line <= (node.end_lineno or node.lineno)
                and (
                    (isinstance(node.func, ast.Attribute) and node.func.attr in attributes)
                    or (isinstance(node.func, ast.Name) and node.func.id in attributes)
                )
            ):
                return node
        return None

    def receiver(self, line: int, attribute: str) -> str:
        """`optimizer` of `optimizer.step()`."""
        call = self.call(line, attribute)
        if call is None or not isinstance(call.func, ast.Attribute):
            return ""
        return ast.get_source_segment(self.text, call.func.value) or ""

    def indent(self, line: int) -> str:
        text = self.lines[line - 1]
        return text[: len(text) - len(text.lstrip())]

    def alone(self, line: int) -> bool:
        """Whether the line is one whole simple statement, so that it can be moved."""
        statement = self.statement(line)
        if statement is None or isinstance(
            statement, (ast.For, ast.While, ast.With, ast.If, ast.FunctionDef)
        ):
            return False
        same = [n for n in ast.walk(self.tree) if isinstance(n, ast.stmt) and n.lineno == line]  # type: ignore[arg-type]
        return statement.lineno == line == statement.end_lineno and len(same) == 1

    # Edits: each gives the whole new text, or "" where it cannot be made.

    def insert_before(self, line: int, code: str) -> str:
        statement = self.statement(line)
        if statement is None:
            return ""
        at = statement.lineno
        return "".join([*self.lines[: at - 1], f"{self.indent(at)}{code}\n", *self.lines[at - 1 :]])

    def insert_after(self, line: int, code: str) -> str:
        statement = self.statement(line)
        if statement is None:
            return ""
        end = statement.end_lineno or statement.lineno
        last = self.lines[end - 1]
        end_line = last if last.endswith("\n") else last + "\n"
        return "".join(
            [*self.lines[: end - 1], end_line, f"{self.indent(statement.lineno)}{code}\n", *self.lines[end:]]
        )

    def move_before(self, line: int, target: int) -> str:
        return self._move(line, target, after=False)

    def move_after(self, line: int, target: int) -> str:
        return self._move(line, target, after=True)

    def _move(self, line: int, target: int, after: bool) -> str:
        if not self.alone(line) or self.statement(target) is None or line == target:
            return ""
        code = self.lines[line - 1].strip()
        statement = self.statement(target)
        assert statement is not None
        if line in range(statement.lineno, (statement.end_lineno or 0) + 1):
            return ""
        moved = self.insert_after(target, code) if after else self.insert_before(target, code)
        lines = moved.splitlines(keepends=True)
        at = (statement.end_lineno or 0) if after else statement.lineno - 1
        gone = line - 1 + (line - 1 >= at)
        del lines[gone]
        return self.checked("".join(lines))

    def move_behind(self, line: int, statement: ast.stmt) -> str:
        """The statement of a line put behind another one, of the same depth, that comes later."""
        moved = self.statement(line)
        if moved is None or moved.lineno != line or self.indent(line) != self.indent(statement.lineno):
            return ""
        begin, end, to = line - 1, moved.end_lineno or line, statement.end_lineno or 0
        if to <= end:
            return ""
        parts = [*self.lines[:begin], *self.lines[end:to], *self.lines[begin:end], *self.lines[to:]]
        return self.checked("".join(part if part.endswith("\n") else part + "\n" for part in parts))

    def without_line(self, line: int) -> str:
        return self.checked("".join(self.lines[: line - 1] + self.lines[line:])) if self.alone(line) else ""

    def without_block(self, block: ast.With) -> str:
        """The body of a `with` alone, one level out."""
        indent, first = len(self.indent(block.lineno)), block.body[0].lineno
        deep = len(self.indent(first)) - indent
        body = [line[deep:] if line.strip() else line for line in self.lines[first - 1 : block.end_lineno]]
        return self.checked(
            "".join([*self.lines[: block.lineno - 1], *body, *self.lines[block.end_lineno :]])
        )

    def replace(self, node: ast.AST, code: str) -> str:
        """The text with one expression written anew."""
        starts = [0]
        for text in self.lines:
            starts.append(starts[-1] + len(text.encode()))
        data = self.text.encode()
        begin = starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        end = starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        return self.checked((data[:begin] + code.encode() + data[end:]).decode())

    def segment(self, node: ast.AST) -> str:
        return ast.get_source_segment(self.text, node) or ""

    @staticmethod
    def checked(text: str) -> str:
        try:
            ast.parse(text)
        except SyntaxError:
            return ""
        return text

    def diff(self, new: str) -> str:
        """From this text to the new one, as `patch` takes it."""
        if not new or new == self.text or not self.checked(new):
            return ""
        name = _short(self.file).lstrip(os.sep)
        lines = difflib.unified_diff(
            self.lines, new.splitlines(keepends=True), f"a/{name}", f"b/{name}", n=2, lineterm="\n"
        )
        end = _line_end(self.file)
        return "".join(line if line.startswith(_HEADS) else _ended(line, end) for line in lines)


_HEADS = ("---", "+++", "@@")


def _line_end(file: str) -> str:
    """What ends a line of a file; its text, as Python reads it, has \\n."""
    try:
        with open(file, "rb") as opened:
            return "\r\n" if opened.readline().endswith(b"\r\n") else "\n"
    except OSError:
        return "\n"


def _ended(line: str, end: str) -> str:
    return line[:-1] + end if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def apply(text: str, diff: str) -> str:
    """The text with a diff of `Source.diff` applied; its lines must be found where the diff says."""
    lines, result, place = text.splitlines(), [], 0
    for line in diff.splitlines():
        if line.startswith(("---", "+++", "\\ No newline")):
            continue
        if line.startswith("@@"):
            start = int(line.split()[1].lstrip("-").split(",")[0]) - 1
            result += lines[place:start]
            place = start
        elif line.startswith("+"):
            result.append(line[1:])
        else:
            if place >= len(lines) or lines[place] != line[1:]:
                raise ValueError(f"the patch does not fit: line {place + 1} is not {line[1:]!r}")
            if line.startswith(" "):
                result.append(lines[place])
            place += 1
    return "\n".join(result + lines[place:]) + "\n"

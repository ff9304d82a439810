"""`python docs/site [FOLDER]` builds the documentation as a site: into the package, for wheels, or a FOLDER.

The written pages are copied, those of studies, claims and the reference are made from the registries, and
Zensical turns all into HTML; a link that leads nowhere fails. What is made cannot be older than the code.
`python docs/site --readme` writes the map of the README anew.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
DOCS, ROOT = HERE.parent, HERE.parents[1]
SITE = ROOT / "src" / "heedful" / "site"
sys.path[:0] = [str(HERE)] * (str(HERE) not in sys.path)

import of_architectures  # noqa: E402
import of_benchmarks  # noqa: E402
import of_claims  # noqa: E402
import of_reference  # noqa: E402
import of_studies  # noqa: E402


def made() -> dict[str, str | bytes]:
    """All pages that are made and not written, by their path."""
    return {**of_studies.pages(), **of_claims.pages(), **of_reference.pages()}


def written() -> dict[str, Path]:
    """Files of the documentation that go into the site as they are."""
    files = [path for path in DOCS.rglob("*") if path.is_file() and path.suffix in KINDS]
    return {path.relative_to(DOCS).as_posix(): path for path in sorted(files)}


KINDS = {".md", ".png", ".svg", ".json", ".css"}


def stage(folder: Path) -> None:
    """All that Zensical needs, in a folder."""
    pages = made()
    for path, file in written().items():
        content = file.read_bytes()
        pages.setdefault(path, mended(content.decode(), path) if path.endswith(".md") else content)
    for path, content in pages.items():
        place = folder / "docs" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
    (folder / "mkdocs.yml").write_text(settings(list(pages)), encoding="utf-8")


def settings(paths: list[str]) -> str:
    """site.yml, with every page of a folder in place of `folder/*`."""
    text = (HERE / "site.yml").read_text(encoding="utf-8")

    def expand(match: re.Match) -> str:
        indent, folder = match[1], match[2]
        if folder == "claims":
            return indent + of_claims.navigation().replace("\n", f"\n{indent}")
        named = re.findall(r"\S+\.md", text)
        found = [path for path in paths if re.fullmatch(rf"{folder}/[^/]+\.md", path) and path not in named]
        return "\n".join(f"{indent}- {path}" for path in found)

    return re.sub(r"^( +)- ([\w/]+)/\*$", expand, text, flags=re.M)


def mended(text: str, path: str) -> str:
    """A written page as the site shows it."""
    if path in ("claims.md", "map.md"):
        text = of_claims.linked(text)
    if path == "measuring.md":
        text += of_benchmarks.section()
    if path.startswith("architectures/") and not path.endswith("README.md"):
        text += of_architectures.section(Path(path).stem)

    def mend(match: re.Match) -> str:
        """Links to other files of the repository name the file: the site does not have it."""
        words, target = match[1], match[2]
        place = posixpath.normpath(posixpath.join(posixpath.dirname(path), target.partition("#")[0]))
        return f"{words} (`{place.removeprefix('../')}`)" if place.startswith("../") else match[0]

    parts = re.split(r"(^```.*?^```)", text, flags=re.S | re.M)
    parts[::2] = [re.sub(r"(?<!!)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)", mend, part) for part in parts[::2]]
    return "".join(parts)


def build(site: Path) -> None:
    """The site, in place of what was there; raises where a link or an anchor leads nowhere."""
    with tempfile.TemporaryDirectory(prefix="heedful-docs-") as folder:
        stage(Path(folder))
        done = subprocess.run(
            [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", "mkdocs.yml"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr))
        shutil.rmtree(site, ignore_errors=True)
        site.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(Path(folder) / "site", site)


if __name__ == "__main__":
    if "--readme" in sys.argv:
        page = ROOT / "README.md"
        page.write_text(of_claims.with_map(page.read_text(encoding="utf-8")), encoding="utf-8")
        raise SystemExit
    chosen = Path(sys.argv[1]) if len(sys.argv) > 1 else SITE
    build(chosen)
    print(f"{sum(1 for _ in chosen.rglob('*.html'))} pages in {chosen}")

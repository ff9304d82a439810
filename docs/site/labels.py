"""For Python-Markdown: every cell of a table knows its column's name, which narrow screens show beside it."""

from __future__ import annotations

import re

from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor


class Labels(Extension):
    def extendMarkdown(self, md):
        md.treeprocessors.register(_Labels(md), "labels", 0)


class _Labels(Treeprocessor):
    def run(self, root):
        for table in root.iter("table"):
            names = [self.plain("".join(head.itertext())) for head in table.iter("th")]
            for row in table.iter("tr"):
                for name, cell in zip(names, row.findall("td"), strict=False):
                    cell.set("data-name", name)

    def plain(self, text: str) -> str:
        """Code in a heading is kept aside until the end; here it is put back."""
        kept = self.md.htmlStash.rawHtmlBlocks
        text = re.sub(
            r"\x02wzxhzdk:(\d+)\x03", lambda match: re.sub(r"<[^>]+>", "", str(kept[int(match[1])])), text
        )
        return re.sub(r"[\x02\x03]", "", text)


def makeExtension(**options):
    return Labels(**options)

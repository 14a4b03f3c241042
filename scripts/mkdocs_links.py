"""A hook of mkdocs: a link from a page to a file outside docs/ becomes its text and the file's path.

On the site there is no such file. In the source tree the link leads to it; tests/packaging checks that.
"""

from __future__ import annotations

import os
import re
from typing import Any

LINK = re.compile(r"\[([^\]\n]+)\]\((\.\./[^)#\s]+)(?:#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Called by mkdocs for each page."""
    here = os.path.dirname(f"docs/{page.file.src_uri}")

    def outside(link: re.Match[str]) -> str:
        path = os.path.normpath(f"{here}/{link[2]}")
        if path.startswith("docs/"):
            return link[0]
        return f"`{path}`" if link[1].strip("`") == path else f"{link[1]} (`{path}`)"

    return LINK.sub(outside, markdown)

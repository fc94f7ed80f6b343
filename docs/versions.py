"""List the versions of the documentation that are in site/, for the menu in every page's header.

``make docs`` builds this version into ``site/VERSION`` and runs this script. It writes ``site/versions.js``, which the
pages load, and ``site/index.html``, which leads to the newest version. Folders of other versions stay: build them from
their own check-outs and put them there.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

INDEX = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={version}/index.html">
<title>fcac {version}</title>
<h1>fcac</h1>
<p><a href="{version}/index.html">Documentation of version {version}</a></p>
"""


def in_order(version: str) -> tuple[tuple[int, int | str], ...]:
    """Return a key that sorts 0.9 before 0.10."""
    return tuple((1, int(part)) if part.isdigit() else (0, part) for part in re.split(r"[.\-+]", version))


def write_versions(site: Path) -> list[str]:
    """Write the list of versions and the first page of a site; return the versions, newest first."""
    found = [page.parent for page in site.glob("*/index.html")]
    found.sort(key=lambda folder: in_order(folder.name), reverse=True)
    if not found:
        raise SystemExit(f"{site} holds no version: run make docs")
    pages = {
        folder.name: sorted(page.relative_to(folder).as_posix() for page in folder.rglob("*.html")) for folder in found
    }
    (site / "versions.js").write_text(f"window.fcacVersions = {json.dumps(pages, indent=0)};\n", "utf-8")
    (site / "index.html").write_text(INDEX.format(version=found[0].name), "utf-8")
    return list(pages)


if __name__ == "__main__":
    print("Versions in the menu:", ", ".join(write_versions(Path(sys.argv[1] if len(sys.argv) > 1 else "site"))))

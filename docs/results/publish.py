"""Put a finished comparison into these pages: its page, its pictures, and its figures, compressed.

``python docs/results/publish.py NAME OUT`` takes what ``fcac reproduce`` wrote into the directory OUT and stores it as
``NAME.md``, ``NAME_*.png`` and ``NAME.json.gz`` beside this file. What was written by hand above the mark in an earlier
``NAME.md`` stays.
"""

from __future__ import annotations

import gzip
import runpy
import sys
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parent
# Of pictures, in pixels: enough for a page.
WIDTH = 1200
MARK = "<!-- what follows was written by the command under the tables -->"


def published(name: str, made: str, earlier: str = "") -> str:
    """Return a page: the heading, what was written by hand, the mark, and the rest of the page that was made."""
    heading, _, rest = made.partition("\n")
    by_hand = earlier.partition(MARK)[0].partition("\n")[2].strip() if MARK in earlier else ""
    shown = rest.replace("](", f"]({name}_")
    return f"{heading}\n\n{by_hand + chr(10) * 2 if by_hand else ''}{MARK}\n{shown}"


def publish(name: str, out: Path) -> None:
    """Copy page, pictures and figures of a run."""
    page = HERE / f"{name}.md"
    made = out / "results.md" if (out / "results.md").exists() else out / "tables.md"
    text = made.read_text("utf-8")
    page.write_text(published(name, text, page.read_text("utf-8") if page.exists() else ""), "utf-8")
    shrink = runpy.run_path(str(HERE.parent / "pictures" / "shrink.py"))["shrink"]
    for picture in sorted(out.glob("*.png")):
        if f"]({picture.name})" in text:
            with Image.open(picture) as drawn:
                drawn.thumbnail((WIDTH, WIDTH))
                drawn.save(HERE / f"{name}_{picture.name}")
            shrink(HERE / f"{name}_{picture.name}")
    # no time in the file, so that the same results give the same bytes
    figures = made.with_suffix(".json").read_bytes()
    (HERE / f"{name}.json.gz").write_bytes(gzip.compress(figures, 9, mtime=0))


if __name__ == "__main__":
    publish(sys.argv[1], Path(sys.argv[2]))

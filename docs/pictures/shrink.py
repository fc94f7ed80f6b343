"""Store the pictures of these pages with few colours and no wider than they are shown, which looks the same.

Run ``python docs/pictures/shrink.py`` after drawing pictures or copying results; only PNG files that are too wide or
have more colours than a palette holds are changed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parent
# Lines, text and points in a few colours: with 64 shades even their soft edges look the same.
N_COLOURS = 64
# Pages show pictures about 700 pixels wide; more than this is not seen even on a fine screen.
MAX_WIDTH = 1240


def shrink(path: Path) -> bool:
    """Replace a picture by a smaller one with a palette; return whether there was anything to do."""
    with Image.open(path) as picture:
        if picture.mode == "P" and picture.width <= MAX_WIDTH:
            return False
        colours = picture.convert("RGBA")
    opaque = Image.new("RGB", colours.size, "white")
    opaque.paste(colours, mask=colours.getchannel("A"))
    if opaque.width > MAX_WIDTH:
        height = round(opaque.height * MAX_WIDTH / opaque.width)
        opaque = opaque.resize((MAX_WIDTH, height), Image.Resampling.LANCZOS)
    few = opaque.quantize(N_COLOURS, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    return True


def main(folder: Path = HERE.parent) -> None:
    """Shrink every PNG below a folder."""
    for path in sorted(folder.rglob("*.png")):
        before = path.stat().st_size
        if shrink(path):
            print(f"{path.relative_to(folder)}: {before:,} -> {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

"""Store the pictures of these pages with few colours, which makes them about a third as large and looks the same.

Run ``python docs/pictures/shrink.py`` after drawing pictures or copying results; only PNG files with more colours than
a palette holds are changed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parent
# Lines, text and points in a few colours: with 64 shades even their soft edges look the same.
N_COLOURS = 64


def shrink(path: Path) -> bool:
    """Replace a picture by one with a palette; return whether it had none."""
    with Image.open(path) as picture:
        if picture.mode == "P":
            return False
        opaque = Image.new("RGB", picture.size, "white")
        opaque.paste(picture, mask=picture.getchannel("A") if "A" in picture.getbands() else None)
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

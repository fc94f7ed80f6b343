"""Draw how often borders and numbers of clusters are real for what the judge says of them.

    python docs/pictures/draw_reliability.py

From ``benchmarks/results/judge.json``, which `benchmarks/fit_judge.py` writes: families of tables that were left out.
"""

from __future__ import annotations

import json
from pathlib import Path

HERE = Path(__file__).parent
SIZE, TOP, LEFTS = 240, 40, (60, 380)


def panel(left: int, title: str, bins: list[list[float]]) -> list[str]:
    """One square: what was said across, how often it was so upwards; larger dots stand for more cases."""
    below = TOP + SIZE
    out = [f'<text x="{left + SIZE / 2}" y="{TOP - 14}" text-anchor="middle" font-weight="bold">{title}</text>']
    for value in (0, 0.25, 0.5, 0.75, 1):
        x, y = left + SIZE * value, below - SIZE * value
        out.append(f'<line x1="{left}" x2="{left + SIZE}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        out.append(f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{value:g}</text>')
        out.append(f'<text x="{x}" y="{below + 18}" text-anchor="middle">{value:g}</text>')
    out.append(f'<line x1="{left}" y1="{below}" x2="{left + SIZE}" y2="{TOP}" stroke="#888" stroke-dasharray="4 4"/>')
    most = max(n for _, _, n in bins)
    for said, true, n in bins:
        radius = 3 + 8 * (n / most) ** 0.5
        place = f'cx="{left + SIZE * said:.1f}" cy="{below - SIZE * true:.1f}" r="{radius:.1f}"'
        out.append(f'<circle {place} fill="#1b6e53" fill-opacity="0.7"><title>{n:.0f} cases</title></circle>')
    out.append(f'<text x="{left + SIZE / 2}" y="{below + 40}" text-anchor="middle">probability that is said</text>')
    return out


def main() -> None:
    figures = json.loads((HERE.parents[1] / "benchmarks/results/judge.json").read_text("utf-8"))
    out = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 330" font-family="sans-serif" font-size="13">',
        '<rect width="640" height="330" fill="white"/>',
        *panel(LEFTS[0], "A border is real", figures["borders"]),
        *panel(LEFTS[1], "The number of clusters is right", figures["numbers"]),
        f'<text transform="translate(18 {TOP + SIZE / 2}) rotate(-90)" text-anchor="middle">share that is so</text>',
        "</svg>",
    ]
    (HERE / "reliability.svg").write_text("\n".join(out) + "\n", "utf-8")


if __name__ == "__main__":
    main()

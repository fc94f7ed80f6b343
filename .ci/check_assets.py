"""Check style sheets and scripts of report and docs: brackets, quotes, nothing from elsewhere; with node the syntax."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT / "src/fcac/report/assets", ROOT / "docs/javascripts", ROOT / "docs/stylesheets")
PAIRS = {")": "(", "]": "[", "}": "{"}
# comments, strings, templates and regular expressions, in which brackets mean nothing
OPAQUE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'"""
    r"""|(?<=[(,=:][ ])/(?:\\.|[^/\\\n])+/\w*|(?<=\()/(?:\\.|[^/\\\n])+/\w*""",
    re.DOTALL,
)
FOREIGN = re.compile(r"https?://(?!www\.w3\.org/)|@import|url\(|\beval\(|innerHTML|document\.write|localStorage")


def problems(path: Path) -> list[str]:
    """Return what is wrong with a file, one line each."""
    text = path.read_text("utf-8")
    found = [f"{path.name}: {match.group(0)!r} is not allowed" for match in FOREIGN.finditer(text)]
    found += [
        f"{path.name}:{number}: a line of {len(line)} characters"
        for number, line in enumerate(text.splitlines(), 1)
        if len(line) > 180 or line != line.rstrip()
    ]
    plain = OPAQUE.sub("", text)
    waiting: list[str] = []
    for character in plain:
        if character in PAIRS.values():
            waiting.append(character)
        elif character in PAIRS and (not waiting or waiting.pop() != PAIRS[character]):
            found.append(f"{path.name}: an unmatched {character}")
            break
    if waiting:
        found.append(f"{path.name}: {len(waiting)} brackets are not closed")
    if path.suffix == ".css":
        block = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
        for name in set(re.findall(r"var\((--[\w-]+)\)", block)) - set(re.findall(r"(--[\w-]+)\s*:", block)):
            # the clusters' colours and a few numbers are set by the page
            if name not in ("--c", "--n") and not name.startswith("--md-"):  # --md-: the docs' theme sets them
                found.append(f"{path.name}: {name} is used but never set")
    node = shutil.which("node")
    if path.suffix == ".js" and node:
        checked = subprocess.run([node, "--check", path], capture_output=True, text=True, check=False)
        if checked.returncode:
            found.append(f"{path.name}: {checked.stderr.strip()}")
    return found


def main() -> int:
    """Check all files; the number of problems is the exit code."""
    found = [line for folder in FOLDERS for path in sorted(folder.iterdir()) for line in problems(path)]
    print("\n".join(found) if found else "Style sheets and scripts: checked.")
    return min(len(found), 1)


if __name__ == "__main__":
    sys.exit(main())

"""Record traces of today's behaviour: ``python tests/golden/record.py [CASE | TRACE | TRACE/CASE ...]``.

``labels`` records the labels of all cases, ``mixed`` everything about one case, ``labels/mixed`` one file, and nothing
records all. A trace is recorded again only if an issue changes what it shows; the commit then says which and why.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from cases import CASES, TRACES, traces

HERE = Path(__file__).parent / "today"


def main(wanted: list[str]) -> None:
    """Write the traces that are asked for."""
    known = {*CASES, *TRACES, *(f"{trace}/{name}" for trace in TRACES for name in CASES)}
    if unknown := set(wanted) - known:
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; cases: {', '.join(CASES)}; traces: {', '.join(TRACES)}")
    for name in CASES:
        asked = [t for t in TRACES if not wanted or {name, t, f"{t}/{name}"} & set(wanted)]
        if not asked:
            continue
        found = traces(name)
        for trace in asked:
            path = HERE / trace / f"{name}.json"
            if trace in found:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(found[trace], indent=1) + "\n", "utf-8")
                print(path.relative_to(HERE))


if __name__ == "__main__":
    main(sys.argv[1:])

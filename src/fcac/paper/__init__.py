"""The paper's evaluation: data sets, splits, rivals, the grid of trials, statistics, tables, figures and attacks.

Only ``fcac reproduce`` imports this subpackage; the library works without it. Running the experiments needs the extra
``experiments`` (``pip install 'fcac[experiments]'``); :func:`check_extra` says so before any work starts. Importing
the subpackage loads nothing else.
"""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["check_extra"]

# Module and name of the package, as pyproject.toml lists them under "experiments".
_NEEDED = {"matplotlib": "matplotlib", "pandas": "pandas", "scikit_posthocs": "scikit-posthocs"}


def check_extra() -> None:
    """Check that the extra ``experiments`` is installed.

    Raises
    ------
    ImportError
        It names the missing packages and says what to install.
    """
    missing = [package for module, package in _NEEDED.items() if not _installed(module)]
    if missing:
        needed = missing[0] if len(missing) == 1 else f"{', '.join(missing[:-1])} and {missing[-1]}"
        raise ImportError(f"the paper's experiments need {needed}: pip install 'fcac[experiments]'")


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False

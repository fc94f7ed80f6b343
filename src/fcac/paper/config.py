"""What a comparison runs: its sets, methods, trials and measures, read from a file of settings."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Config:
    """What a comparison runs.

    Attributes
    ----------
    name, title : str
    reference : str
        The method that the others are tested against.
    measures : tuple of str
        Figures in the tables; those in `ranked` are compared by rank, higher is better.
    ranked : tuple of str
    sets, methods : tuple of str
    trials : int
    packages : tuple of str
        Packages whose versions the page states.
    notes : str
        What a reader has to know before reading the tables.
    unranked : tuple of str
        Methods that are shown and not ranked.
    epsilons : tuple of float
        Values of epsilon, if every set is run at several.
    file_sets : tuple of str
        Sets that come from files, and are left out if their files are not there.
    further_sets : tuple of str
        Sets that run only if they are asked for.
    unseen : tuple of str
        Sets that nothing was chosen on. Where there are any, ranks and tests are on these only.
    """

    name: str
    title: str
    reference: str
    measures: tuple[str, ...]
    ranked: tuple[str, ...]
    sets: tuple[str, ...]
    methods: tuple[str, ...]
    trials: int
    packages: tuple[str, ...]
    notes: str = ""
    unranked: tuple[str, ...] = ()
    epsilons: tuple[float, ...] = ()
    file_sets: tuple[str, ...] = ()
    further_sets: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()

    @property
    def ranked_methods(self) -> tuple[str, ...]:
        """Methods that take part in the rank tests."""
        return tuple(method for method in self.methods if method not in self.unranked)

    def narrowed(self, sets: Sequence[str], methods: Sequence[str], trials: int | None) -> Config:
        """Return the same comparison with fewer sets, methods or trials; a name that is not there is an error."""
        for wanted, known, what in ((sets, (*self.sets, *self.further_sets), "set"), (methods, self.methods, "method")):
            unknown = [name for name in wanted if name not in known]
            if unknown:
                raise ValueError(f"{what}: {', '.join(unknown)} is not one of {', '.join(known)}")
        return replace(
            self,
            sets=tuple(sets) or self.sets,
            methods=tuple(methods) or self.methods,
            trials=self.trials if trials is None else trials,
        )

    def without(self, methods: Iterable[str]) -> Config:
        """Return the same comparison without some methods."""
        dropped = set(methods)
        return replace(self, methods=tuple(method for method in self.methods if method not in dropped))


def read_config(name: str, *, quick: bool = False) -> Config:
    """Read the description of a comparison.

    Parameters
    ----------
    name : str
        Name of a file in ``fcac/paper/configs``, without ``.toml``.
    quick : bool, default=False
        Take the smaller lists under ``[quick]``.
    """
    chosen = _read(name, quick)
    return Config(
        name=name,
        title=chosen["title"],
        reference=chosen["reference"],
        measures=tuple(chosen["measures"]),
        ranked=tuple(chosen["ranked"]),
        sets=tuple(chosen["sets"]),
        methods=tuple(chosen["methods"]),
        trials=int(chosen["trials"]),
        packages=tuple(chosen["packages"]),
        notes=chosen.get("notes", "").strip(),
        unranked=tuple(chosen.get("unranked", ())),
        epsilons=tuple(float(epsilon) for epsilon in chosen.get("epsilons", ())),
        file_sets=() if quick else tuple(chosen.get("file_sets", ())),
        unseen=tuple(chosen.get("unseen", ())),
    )


def with_files(config: Config, data_dir: Path | None) -> Config:
    """Add the sets of a directory (NAME.npz): those of the comparison run, others can be asked for by name."""
    if data_dir is None:
        return config
    found = {path.stem for folder in (data_dir, data_dir / "shapes") for path in folder.glob("*.npz")}
    sets = (*config.sets, *(name for name in config.file_sets if name in found))
    return replace(config, sets=sets, further_sets=tuple(sorted(found - set(sets))))


@dataclass(frozen=True)
class GridConfig:
    """What a run of the paper's grid runs.

    Attributes
    ----------
    title : str
    sets : tuple of str
        Empty: the paper's ten sets.
    methods : tuple of str
    epsilons : tuple of float
    trials : int
    """

    title: str
    sets: tuple[str, ...]
    methods: tuple[str, ...]
    epsilons: tuple[float, ...]
    trials: int


def read_grid(name: str, *, quick: bool = False) -> GridConfig:
    """Read the description of a run of the paper's grid; `quick` takes the smaller lists under ``[quick]``."""
    chosen = _read(name, quick)
    return GridConfig(
        title=chosen["title"],
        sets=tuple(chosen.get("sets", ())),
        methods=tuple(chosen["methods"]),
        epsilons=tuple(float(epsilon) for epsilon in chosen["epsilons"]),
        trials=int(chosen["trials"]),
    )


def _read(name: str, quick: bool) -> dict[str, Any]:
    content = tomllib.loads(files("fcac.paper").joinpath(f"configs/{name}.toml").read_text("utf-8"))
    return content | (content["quick"] if quick else {})

"""The interface of privacy mechanisms, their settings in model files, and their statements in contributions."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np

from fcac._typing import Floats
from fcac.privacy._plain import PlainObject
from fcac.privacy.released_state import ReleasedState

#: "central": what leaves a site is differentially private, so nodes may be shown to anybody. "local": every record is
#: differentially private before it is learned. "none": noise without a guarantee.
Guarantee = Literal["central", "local", "none"]


class Mechanism(PlainObject):
    """A transformation of records before anything leaves a site.

    To add one, put a subclass into a file of ``fcac/privacy/mechanisms``, named like the class in lower case with
    underscores. A row mechanism (``kind = "row"``) has ``perturb(X, site, round)``, which returns noised rows. A
    node mechanism (``kind = "node"``) has ``release(X, state, site, round)``, which returns nodes, counts and the
    state for the next round. The names of its settings, which are arguments of its constructor and attributes, are in
    ``_fields``: model files hold these and nothing else.

    Attributes
    ----------
    kind : {"row", "node"}
    guarantee : {"central", "local", "none"}
    title : str
        Short description for reports.
    per : str
        The unit to which epsilon applies.
    epsilon : float
        What one use costs; infinite, as it is by default, for a mechanism that promises nothing.
    """

    kind: ClassVar[Literal["row", "node"]]
    guarantee: ClassVar[Guarantee] = "none"
    title: ClassVar[str]
    per: ClassVar[str] = "record"
    epsilon: float = math.inf

    def to_settings(self) -> dict[str, Any]:
        """Return the settings as JSON values; a ledger is stored by its file name, without the directory."""
        settings: dict[str, Any] = {}
        for field in self._fields:
            value = getattr(self, field)
            if field == "sampler":
                if not getattr(value, "secure", False):
                    raise ValueError("a model with test noise cannot be stored: it could be mistaken for a private one")
                continue
            if field == "ledger":
                value = (
                    None
                    if value is None
                    else {"path": Path(value.path).name, "budget": value.budget, "delta": value.delta}
                )
            settings[field] = value.tolist() if isinstance(value, np.ndarray) else value
        return settings

    def statement(self, n_releases: int, state: ReleasedState | None = None) -> dict[str, Any]:
        """Return the short privacy statement that is sent with a contribution; it never depends on rows.

        Without a finite epsilon it names none. `state`, the released state of a node mechanism, knows what was spent.
        """
        name, cost = type(self).__name__, {"epsilon": float(self.epsilon)}
        if not math.isfinite(self.epsilon):
            if self.guarantee != "none":
                raise ValueError(f'epsilon: {name} promises something, so it must be finite, or guarantee be "none"')
            cost = {}
        return {"mechanism": name, **cost, "rounds": n_releases}


@runtime_checkable
class RowMechanism(Protocol):
    """What a site asks of a mechanism that puts noise on rows, which are then condensed as usual."""

    def perturb(self, X: Any, site: str | int | None = None, round: int = 1) -> Floats:
        """Return noised rows."""
        ...


@runtime_checkable
class NodeMechanism(Protocol):
    """What a site asks of a mechanism that makes the nodes itself, so that only nodes with noise leave the site."""

    def release(
        self, X: Any, state: ReleasedState | None = None, site: str = "site", round: int = 1
    ) -> tuple[Floats, Floats, ReleasedState]:
        """Return nodes, counts, and the state for the next round."""
        ...


#: What `Site(privacy=...)` and `FCAC(privacy=...)` take, beside None.
AnyMechanism = RowMechanism | NodeMechanism

"""Settings of a federation (``federation.toml`` at the server) and of a site (``settings.json``)."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fcac import persistence
from fcac._split_rate import FALSE_SPLIT_RATE, check_rate
from fcac.tables.schema import Schema

if TYPE_CHECKING:
    # the hub's process reads settings and learns nothing: without this it is ready seconds sooner
    from fcac.federation.condenser import Condenser

FEDERATION_FILE = "federation.toml"
#: Folder, below that of the federation, with what has been learned.
STATE = "state"
STATUSES = ("active", "forgotten", "revoked")

# Site names become directory names and TOML keys, so they must be plain.
_SITE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


def check_site_name(name: str) -> str:
    """Return a valid site name, or raise an error that says what is wrong with it."""
    if not _SITE_NAME.fullmatch(name):
        raise ValueError(
            f"site name {name!r}: use letters, digits, '-' and '_' (at most 63, the first a letter or a digit)"
        )
    return name


@dataclass(frozen=True)
class Limits:
    """What the server accepts from one site.

    Parameters
    ----------
    max_nodes : int
        Maximum number of nodes in one contribution; larger contributions are rejected.
    bounds_margin : float
        Nodes may lie this many widths outside the schema's bounds; contributions with nodes further out are rejected.
        Applies only if the schema has bounds.
    max_node_share : float, optional
        Largest share of all nodes that one site can have; of a larger contribution only the nodes with the highest
        counts are kept. By default twice what it would have among equals, and at least 0.1; 1 means no cap.
    max_count_share : float, optional
        Largest share of all counts that one site can have; larger counts are scaled down. The same default.
    min_spacing : float, optional
        Of nodes of one site that are closer together than this fraction of the usual spacing (the median over sites),
        only the heaviest are kept. The nodes of an honest site keep their distance; 0.25 does not affect them.
    """

    max_nodes: int = 20_000
    bounds_margin: float = 1.0
    max_node_share: float | None = None
    max_count_share: float | None = None
    min_spacing: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.max_nodes, int) or self.max_nodes < 1:
            raise ValueError(f"limits.max_nodes must be a whole number of at least 1, got {self.max_nodes!r}")
        if not self.bounds_margin >= 0:
            raise ValueError(f"limits.bounds_margin must be at least 0, got {self.bounds_margin!r}")
        for name in ("max_node_share", "max_count_share"):
            share = getattr(self, name)
            if share is not None and not 0 < share <= 1:
                raise ValueError(f"limits.{name} must be above 0 and at most 1, got {share!r}")
        if self.min_spacing is not None and not self.min_spacing > 0:
            raise ValueError(f"limits.min_spacing must be above 0, got {self.min_spacing!r}")


@dataclass(frozen=True)
class Member:
    """A site as known to the hub: the fingerprint of its key, and its status.

    After a change of keys, the fingerprint `before` is accepted until the site has used its new key. `summing` is
    the public key (hexadecimal) with which it signs in summed rounds.
    """

    key: str = ""
    before: str = ""
    summing: str = ""
    status: str = "active"


@dataclass(frozen=True)
class Summing:
    """How the sites of a study are summed before anyone sees; see :mod:`fcac.aggregation`."""

    epsilon: float
    delta: float
    tolerance: int
    least: int


@dataclass(frozen=True)
class FederationSettings:
    """All settings of the server."""

    schema: Schema
    name: str = "federation"
    address: str = "127.0.0.1:18000"
    join_port: int = 18001
    server: str = "cae-fc"
    max_nodes: int | None = None
    min_rows: int = 1
    forgetting: str = "none"
    scale: str = "auto"
    false_split_rate: float = FALSE_SPLIT_RATE
    seed: int = 0
    timeout: float = 300.0
    wait: float = 60.0
    people_overlap: int | None = None
    limits: Limits = field(default_factory=Limits)
    members: dict[str, Member] = field(default_factory=dict)
    summing: Summing | None = None

    @property
    def active(self) -> list[str]:
        """Names of the sites that take part, sorted."""
        return sorted(name for name, member in self.members.items() if member.status == "active")

    @classmethod
    def load(cls, directory: str | Path) -> FederationSettings:
        """Read ``federation.toml`` and the schema it names."""
        path = Path(directory) / FEDERATION_FILE
        given = read_toml(path)
        if given is None:
            raise ValueError(f"{path} does not exist: make a federation with 'fcac federation init'")
        try:
            top, rounds = given["federation"], given.get("rounds", {})
            members = {check_site_name(name): _member(name, entry) for name, entry in given.get("sites", {}).items()}
            return cls(
                schema=Schema.load(Path(directory) / top["schema"]),
                name=str(top["name"]),
                address=str(top["address"]),
                join_port=int(top.get("join_port", 0)) or int(str(top["address"]).rpartition(":")[2]) + 1,
                server=str(top.get("server", "cae-fc")),
                max_nodes=given.get("condensing", {}).get("max_nodes"),
                min_rows=given.get("condensing", {}).get("min_rows", 1),
                forgetting=given.get("condensing", {}).get("forgetting", "none"),
                scale=given.get("condensing", {}).get("scale", "auto"),
                false_split_rate=check_rate(top.get("false_split_rate", FALSE_SPLIT_RATE)),
                seed=int(top.get("seed", 0)),
                timeout=float(rounds.get("timeout", 300.0)),
                wait=float(rounds.get("wait", 60.0)),
                people_overlap=_overlap(given.get("privacy", {}).get("people_overlap")),
                limits=Limits(**given.get("limits", {})),
                members=members,
                summing=None if "summing" not in given else Summing(**given["summing"]),
            )
        except KeyError as error:
            raise ValueError(f"{path} has no field {error}") from None
        except TypeError as error:
            raise ValueError(f"{path}: {error}") from None


def read_toml(path: Path) -> dict[str, Any] | None:
    """Return what a TOML file holds; None if there is no such file."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} cannot be read: {error}") from None


def _overlap(given: Any) -> int | None:
    if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given < 1):
        raise ValueError(f"privacy.people_overlap must be a whole number of at least 1, got {given!r}")
    return given


def _member(name: str, entry: dict[str, Any]) -> Member:
    member = Member(**entry)
    if member.status not in STATUSES:
        raise ValueError(f"site {name} has status {member.status!r}: use {', '.join(STATUSES)}")
    return member


@dataclass(frozen=True)
class SiteSettings:
    """The decisions of a site's own operator; no request can change them.

    Parameters
    ----------
    name : str
    data : str
        File or directory to watch, or the address of a database (without a password).
    state : str
        Directory for the site's state, its ledger and its stored replies.
    schema : str
        Path of the schema.
    epsilon : float or None
        Cost of one round at ``delta``; None means no privacy, which the operator has to request explicitly.
    delta : float
    budget : float or None
        Total epsilon that may be spent.
    settle : float
        Seconds for which a file must not have changed before a last line without a line break counts as complete.
    record_id : str or None
        Column that identifies the person of each row: the ledger then adds up costs per person.
    condenser : {"reservoir", "ca-plus"}
        How rows become nodes, as set by the study.
    max_nodes : int, optional
        Maximum number of nodes of a reservoir.
    min_rows : int
        Minimum number of rows behind a node of a reservoir that is sent without noise. It protects nobody.
    forgetting : str
        How rows lose weight with the rounds, as set by the study: "none", "half-life=ROUNDS" or "window=ROUNDS".
    scale : str
        How columns are brought to one scale, as set by the study.
    summing_key : str
        If the study sums its sites: file of this site's own signing key.
    read : dict
        How to read the data: what differs from the defaults of :class:`fcac.tables.ReadOptions`.
    encoders : dict
        Version and checksum of the encoders of text columns, by name, as set by the study.
    agree : float or None
        Cost of one agreement on the bounds and levels that the schema lacks; None: the site takes part in none.
    """

    name: str
    data: str
    state: str
    schema: str
    epsilon: float | None = None
    delta: float = 1e-6
    budget: float | None = None
    settle: float = 2.0
    record_id: str | None = None
    condenser: str = "ca-plus"
    max_nodes: int | None = None
    min_rows: int = 1
    forgetting: str = "none"
    scale: str = "auto"
    read: dict[str, Any] = field(default_factory=dict)
    encoders: dict[str, dict[str, str]] = field(default_factory=dict)
    summing_key: str = ""
    agree: float | None = None

    def __post_init__(self) -> None:
        self.make_condenser()  # refuses what it cannot use
        if self.private and self.forgetting != "none":
            raise ValueError(
                f"the study says forgetting = {self.forgetting!r}, but what was released with an epsilon cannot be "
                "forgotten: take part without epsilon, or ask for a study without forgetting"
            )
        if self.record_id is not None and not self.private:
            raise ValueError("record ids determine how a ledger adds up costs: they need an epsilon")

    @property
    def private(self) -> bool:
        """Whether contributions are made by NodeRelease."""
        return self.epsilon is not None

    def make_condenser(self) -> Condenser:
        """Return how this site's rows become nodes; the same at every site of a study."""
        from fcac.federation.condenser import condenser_for

        return condenser_for(self.condenser, self.max_nodes, self.min_rows, self.forgetting, self.scale)

    def mechanism(self) -> Any:
        """Return the site's mechanism, with its ledger in the state directory; None without privacy."""
        if self.epsilon is None:
            return None
        from fcac.privacy import Ledger, NodeRelease

        if self.budget is None:
            raise ValueError("budget is missing: the epsilon that this site may spend over all rounds has no default")
        ledger = Ledger(Path(self.state) / "ledger.db", self.budget, self.delta)
        return NodeRelease(self.epsilon, Schema.load(self.schema).require_bounds(), self.delta, ledger)

    def save(self, path: str | Path) -> None:
        """Write the settings as JSON, atomically."""
        persistence.write_atomic(path, (json.dumps(asdict(self), indent=2) + "\n").encode())

    @classmethod
    def load(cls, path: str | Path) -> SiteSettings:
        """Read settings written by :meth:`save`."""
        return cls(**json.loads(Path(path).read_text("utf-8")))


def schema_digest(schema: Schema) -> str:
    """Return a name for exactly this schema, however its file is laid out."""
    return hashlib.sha256(schema.to_toml().encode()).hexdigest()


def outside_bounds(nodes: Any, bounds: Any, margin: float) -> bool:
    """Return whether any node lies more than `margin` widths outside the bounds."""
    low, high = np.asarray(bounds, dtype=np.float64).T
    slack = margin * (high - low)
    return bool(((nodes < low - slack) | (nodes > high + slack)).any())


def most_bytes(settings: FederationSettings) -> int:
    """Return the length of the longest contribution that a federation's hub accepts."""
    # 8 bytes for every value of nodes and counts, 4 for its deviation
    return settings.limits.max_nodes * (settings.schema.n_features + 1) * 12 + 2000

"""The directory of a federation: how it is created, and how sites are added, forgotten and revoked in it.

The directory contains::

    federation.toml     settings, to be read and edited by people
    schema.toml         columns and bounds, the same for all sites
    ca/                 the private certificate authority (keep ca.key safe)
    server/             the hub's certificate, invitations, the token for metrics
    state/              model, contributions, journal and report

A site's private keys are made at the site (:mod:`fcac.deployment.invitations`) and are never in this directory.
"""

from __future__ import annotations

import re
import shutil
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fcac import persistence
from fcac._text import plain
from fcac.clusters.judge import FALSE_SPLIT_RATE, check_rate
from fcac.deployment import aggregated_study, certificates
from fcac.deployment.hub import Hub
from fcac.deployment.outbox import Outbox
from fcac.deployment.settings import FEDERATION_FILE, STATE, FederationSettings, Summing, check_site_name
from fcac.tables.schema import Schema
from fcac.tables.text_encoder import fingerprints

BUNDLE_FILE = "bundle.toml"
KEY_FILE = "node.key"
CERTIFICATE_FILE = "node.crt"
#: The list of sites that the hub offers, in a bundle; nobody has agreed to it yet.
OFFERED_FILE = "roster-offered.fcac"

_FEDERATION = """\
# A federation of sites, created by `fcac federation init`; change the numbers as you see fit.
# To change sites, use `fcac federation add`, `forget` and `revoke`.

[federation]
name = "{name}"
address = "{address}"   # the address at which sites reach the hub
join_port = {join_port}   # the port of the same host at which sites ask to join
schema = "schema.toml"
server = "{server}"   # how clusters are read: communities, or cae-fc (the paper's)
seed = {seed}
false_split_rate = {false_split_rate}   # how often data without clusters may come out as several
{condensing}
[rounds]
timeout = {timeout}   # seconds a site has to answer
wait = {wait}   # seconds to wait for sites to connect before a round begins

{privacy}[limits]
max_nodes = 20000   # maximum number of nodes in one contribution
bounds_margin = 1.0   # nodes may lie this many widths outside the bounds of the schema
# Without these two, one site has at most twice the share it would have among equals (and at least 0.1); 1 = no cap.
# max_node_share = 0.25   # largest share of all nodes that one site can have
# max_count_share = 0.25   # largest share of all counts that one site can have
# min_spacing = 0.25   # nodes of one site closer than this fraction of the usual spacing are thinned out
"""

_PRIVACY = """\
[privacy]
people_overlap = {people_overlap}   # number of sites at which one person may have rows, as the study assumes

"""

_BUNDLE = """\
# What site {site} needs to take part in "{name}". Keep this directory secret: node.key is your identity.

site = "{site}"
federation = "{name}"
address = "{address}"
join_port = {join_port}
{condensing}{encoders}"""

_ENCODER = """
[encoders."{name}"]   # turns text into vectors; every site must have exactly this one
version = "{version}"
checksum = "{checksum}"
"""

_CONDENSING = """
[condensing]   # the same at every site; copied to the bundles of sites added later
max_nodes = {max_nodes}   # maximum number of nodes to which a site condenses its rows
min_rows = {min_rows}   # without --epsilon: minimum number of rows behind a node that is sent
forgetting = "{forgetting}"   # or "half-life=ROUNDS" or "window=ROUNDS": how rows lose weight
scale = "{scale}"   # how columns are brought to one scale: auto, none, standard or robust
"""

_BUNDLE_CONDENSING = """
[condensing]   # set by the study; the same at every site
condenser = "reservoir"
max_nodes = {max_nodes}
min_rows = {min_rows}
forgetting = "{forgetting}"
scale = "{scale}"
"""


def init(
    directory: str | Path,
    schema: str | Path,
    *,
    address: str = "127.0.0.1:18000",
    join_port: int | None = None,
    name: str | None = None,
    server: str = "communities",
    max_nodes: int | None = None,
    min_rows: int = 3,
    forgetting: str = "none",
    scale: str = "auto",
    false_split_rate: float = FALSE_SPLIT_RATE,
    seed: int = 0,
    timeout: float = 300.0,
    wait: float = 60.0,
    people_overlap: int | None = None,
    summing: Summing | None = None,
) -> Path:
    """Create the directory of a federation, its certificate authority and the hub's certificate.

    Parameters
    ----------
    directory : path-like
        Must not contain a federation yet.
    schema : path-like
    address : str
        ``host:port`` at which sites reach the hub.
    join_port : int, optional
        Port at which sites ask to join; by default the next one.
    name : str, optional
        By default the name of the directory.
    server : str
        "communities", or "cae-fc", the paper's.
    max_nodes : int, optional
        Most nodes that a site condenses its rows to; by default 4,000. Not for "cae-fc".
    min_rows : int
        Fewest rows that a node stands for when a site sends it without privacy. Not for "cae-fc".
    forgetting : str
        How rows lose weight with the rounds: "none", "half-life=ROUNDS" or "window=ROUNDS". Not for "cae-fc".
    scale : str
        How columns are brought to one scale: "auto", "none", "standard" or "robust". Not for "cae-fc".
    false_split_rate : float
        How often data without clusters may come out as several. Not for "cae-fc".
    seed : int
        Seed of the server's shuffling.
    timeout, wait : float
        Seconds a site has to answer, and to connect.
    people_overlap : int, optional
        At how many sites one person may be, as the study assumes: status and report then give the sum.
    summing : Summing, optional
        Sum all sites under secure aggregation; see :func:`fcac.deployment.aggregated_study.summing_for`.

    Returns
    -------
    Path
        The directory.
    """
    root = Path(directory)
    port = join_port or certificates.split_address(address)[1] + 1
    if (root / FEDERATION_FILE).exists():
        raise ValueError(f"{root} already contains a federation: 'invite' more sites to it, or use another directory")
    loaded = Schema.load(schema)
    if summing is not None:
        loaded.require_bounds()
    check_rate(false_split_rate)
    condensing = _condensing(server, seed, max_nodes, min_rows, forgetting, scale)
    for secret in ("ca", "server", STATE):
        (root / secret).mkdir(parents=True, exist_ok=True)
        (root / secret).chmod(0o700)
    shutil.copyfile(schema, root / "schema.toml")
    label = name or root.resolve().name
    certificates.make_authority(root / "ca", label)
    renew(root, address)
    text = _FEDERATION.format(
        name=_plain(label),
        address=address,
        join_port=port,
        server=server,
        condensing=_in_words(_CONDENSING, condensing),
        seed=seed,
        false_split_rate=false_split_rate,
        timeout=timeout,
        wait=wait,
        privacy="" if people_overlap is None else _PRIVACY.format(people_overlap=people_overlap),
    )
    if summing is not None:
        text += aggregated_study.federation_text(summing)
    # written last: a directory with this file is a complete federation
    persistence.write_atomic(root / FEDERATION_FILE, text.encode())
    _hub(root).note("made")
    return root


def renew(root: Path, address: str | None = None, also: Sequence[str] = ()) -> None:
    """Create a new certificate for the hub from the same authority; the sites need not change anything."""
    where = FederationSettings.load(root).address if address is None else address
    host = certificates.split_address(where)[0]
    hosts = list(dict.fromkeys([host, *also, "localhost", "127.0.0.1"]))
    certificates.make_server_certificate(root / "ca", root / "server", hosts)


def add(root: Path, site: str) -> None:
    """Re-admit a site that was forgotten, with the key that it has; any other is to be invited."""
    check_site_name(site)
    known = FederationSettings.load(root).members.get(site)
    if known is not None and known.status == "active":
        raise ValueError(f"site {site} already takes part")
    if known is None or known.status != "forgotten":
        why = "is new here" if known is None else "was revoked"
        raise ValueError(f"site {site} {why}: invite it, and it makes a key of its own")
    _edit_member(root, site, {"status": "active"})
    note(root, "added", site=site)


def admit(root: Path, site: str, public: str, summing: str = "") -> None:
    """Let a site take part with keys of its own; `summing` is the public one for summed rounds."""
    settings = FederationSettings.load(root)
    known = settings.members.get(site)
    if known is not None and known.status == "active":
        raise ValueError(f"site {site} already takes part")
    if known is None:
        path = root / FEDERATION_FILE
        text = path.read_text("utf-8").rstrip("\n") + "\n" + _member_text(check_site_name(site), public, summing)
        persistence.write_atomic(path, text.encode())
    else:
        _edit_member(root, site, {"status": "active", "key": public, "before": "", "summing": summing})
    _offer_roster(root)
    note(root, "added", site=site)


def _offer_roster(root: Path) -> None:
    """Write the list of sites that are summed, once there are enough of them."""
    settings = FederationSettings.load(root)
    if settings.summing is None:
        return
    members = {name: settings.members[name] for name in settings.active}
    known = {} if aggregated_study.offered(root) is None else aggregated_study.read_roster(root).keys
    keys = {name: bytes.fromhex(member.summing) for name, member in members.items() if member.summing}
    keys = {name: key for name, key in known.items() if name in members} | keys
    if len(keys) >= settings.summing.least:
        aggregated_study.write_roster(root, settings.name, keys, settings.summing)


def renew_site(root: Path, site: str, request: str) -> str:
    """Return a certificate for a new key of a site; its old key counts until the new one was used."""
    key = certificates.request_fingerprint(request)
    with persistence.locked(root / "server" / "members.lock"):
        member = FederationSettings.load(root).members[site]
        certificate = certificates.sign_site(root / "ca", site, request)
        if key != member.key:
            # should the answer be lost, the site asks again, with the key that it has in use
            _edit_member(root, site, {"key": key, "before": member.before or member.key})
            note(root, "new key", site=site, fingerprint=certificates.spoken(key))
    return certificate


def settle_key(root: Path, site: str) -> None:
    """End the validity of a site's old key: the site has used its new one."""
    with persistence.locked(root / "server" / "members.lock"):
        _edit_member(root, site, {"before": ""})


def bundle_files(root: Path, site: str) -> dict[str, str]:
    """Return the files of a site's bundle that hold no secret."""
    text = _bundle_text(root, site, _facts(FederationSettings.load(root)))
    roster = aggregated_study.offered(root)
    return {
        **({} if roster is None else {OFFERED_FILE: roster.hex()}),
        BUNDLE_FILE: text,
        "schema.toml": (root / "schema.toml").read_text("utf-8"),
        "ca.crt": (root / "ca" / "ca.crt").read_text("ascii"),
    }


def note(root: Path, event: str, **facts: Any) -> None:
    """Write to the hub's journal."""
    _hub(root).note(event, **facts)


class _Facts(NamedTuple):
    """What all bundles of a study say alike."""

    name: str
    address: str
    join_port: int
    condensing: dict[str, Any]
    summing: Summing | None


def _facts(settings: FederationSettings) -> _Facts:
    # CA+ has no settings and needs none
    names = () if settings.max_nodes is None else ("max_nodes", "min_rows", "forgetting", "scale")
    condensing = {name: getattr(settings, name) for name in names}
    return _Facts(settings.name, settings.address, settings.join_port, condensing, settings.summing)


def _bundle_text(root: Path, site: str, facts: _Facts) -> str:
    encoders = fingerprints(Schema.load(root / "schema.toml"))
    text = _BUNDLE.format(
        site=site,
        name=facts.name,
        address=facts.address,
        join_port=facts.join_port,
        condensing=_in_words(_BUNDLE_CONDENSING, facts.condensing),
        encoders="".join(_ENCODER.format(**found) for found in encoders.values()),
    )
    return text if facts.summing is None else text + aggregated_study.bundle_text(facts.summing)


def _condensing(
    server: str, seed: int, max_nodes: int | None, min_rows: int, forgetting: str, scale: str
) -> dict[str, Any]:
    """Return the settings of condensing, after checking them; none for CA+."""
    # the hub's service needs this module too, and nothing that learns
    from fcac.federation import Server, readouts
    from fcac.federation.condenser import AgingCondenser, ReservoirCondenser, condenser_for

    Server(server, seed)
    made = condenser_for(readouts.find(server).condenser, max_nodes, min_rows, forgetting, scale)
    if not isinstance(made, AgingCondenser | ReservoirCondenser):
        return {}
    return {"max_nodes": made.max_nodes, "min_rows": made.min_rows, "forgetting": forgetting, "scale": scale}


def _in_words(template: str, condensing: dict[str, Any]) -> str:
    return template.format(**condensing) if condensing else ""


def _member_text(site: str, public: str, summing: str = "") -> str:
    return f'\n[sites.{site}]\nstatus = "active"\nkey = "{public}"\nbefore = ""\nsumming = "{summing}"\n'


def forget(root: Path, site: str) -> bool:
    """Remove a site's contributions from the model, exactly, and do not ask it again; return False if it had none."""
    _require_member(root, site)
    if FederationSettings.load(root).summing is not None:
        raise ValueError(
            f"site {site} cannot be forgotten: the hub has only sums over all sites, and a summed round cannot be "
            f"unsummed. 'revoke' keeps the site out of later rounds; a new study without it costs the other sites "
            "their budget again"
        )
    if FederationSettings.load(root).members[site].status == "active":
        _edit_member(root, site, {"status": "forgotten"})
    return _hub(root).forget(site)


def revoke(root: Path, site: str) -> str:
    """Revoke a site's access and return its public key; what it contributed stays in the model."""
    _require_member(root, site)
    settings = FederationSettings.load(root)
    public = settings.members[site].key
    if settings.summing is not None and aggregated_study.offered(root) is not None:
        keys = {name: key for name, key in aggregated_study.read_roster(root).keys.items() if name != site}
        aggregated_study.write_roster(root, settings.name, keys, settings.summing)
    _edit_member(root, site, {"status": "revoked"})
    hub = _hub(root)
    Outbox(hub.store).drop([site])
    hub.note("revoked", site=site)
    return public


def read_bundle(bundle: str | Path) -> dict[str, Any]:
    """Return the contents of a bundle's description, after checking it: it was written by the hub."""
    path = Path(bundle) / BUNDLE_FILE
    if not path.is_file():
        raise ValueError(f"{bundle} is not a site bundle: it has no {BUNDLE_FILE}")
    try:
        facts = tomllib.loads(path.read_text("utf-8"))
        check_site_name(str(facts["site"]))
        certificates.split_address(str(facts["address"]))
        condensing = facts.get("condensing", {})
        allowed = {"condenser", "max_nodes", "min_rows", "forgetting", "scale"}
        if not isinstance(facts["join_port"], int) or not isinstance(condensing, dict) or set(condensing) - allowed:
            raise ValueError("it has settings that are not the hub's to make")
    except (ValueError, KeyError) as error:
        raise ValueError(f"{path} cannot be used: {plain(str(error))}") from None
    return {**facts, "federation": plain(str(facts.get("federation", "")), 100)}


def _hub(root: Path) -> Hub:
    return Hub(root / STATE, FederationSettings.load(root))


def _require_member(root: Path, site: str) -> None:
    members = FederationSettings.load(root).members
    if site not in members:
        raise ValueError(f"there is no site {site!r}; the sites are {', '.join(sorted(members)) or 'none'}")


def _edit_member(root: Path, site: str, changes: dict[str, str]) -> None:
    """Change values in a site's section, leaving everything else, including comments, as it was written."""
    path = root / FEDERATION_FILE
    lines = path.read_text("utf-8").splitlines()
    start = lines.index(f"[sites.{site}]")
    for number in range(start + 1, len(lines)):
        if lines[number].startswith("["):
            break
        key = lines[number].partition("=")[0].strip()
        if key in changes:
            lines[number] = f'{key} = "{changes[key]}"'
    persistence.write_atomic(path, ("\n".join(lines) + "\n").encode())


def _plain(text: str) -> str:
    return re.sub(r'[\\"\x00-\x1f]', "", text) or "federation"

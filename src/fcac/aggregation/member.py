"""The site's side of the protocol, as a state machine without input or output.

A member never trusts the hub. It checks the roster against the one its operator has agreed to, the number of sites,
every site's signature and every earlier answer; instead of going on, it raises
:class:`~fcac.exceptions.AggregationRefused` with the reason. What it keeps between two requests can be stored
(:meth:`Member.to_bytes`), so that a process may end after every answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fcac._typing import Integers
from fcac.aggregation import messages
from fcac.aggregation.keys import AgreementKey, SigningKey, derive, digest, is_signed, new_seed, seal, unseal
from fcac.aggregation.masks import Residues, own_mask, pair_mask, to_residues
from fcac.aggregation.messages import CONFIRM, JOIN, MASK, REPLY, REQUEST, REVEAL, SHARE, Advert, Message, MessageError
from fcac.aggregation.roster import Roster, check_own
from fcac.aggregation.shares import SHARE_BYTES, split
from fcac.exceptions import AggregationRefused
from fcac.persistence import pack, unpack

_KIND = "aggregation-member"


class Assignment(NamedTuple):
    """What a site is to compute in one step; everything but the task is checked by the member itself.

    Attributes
    ----------
    task : bytes
        As the hub sent it.
    step, n_steps : int
        Number of the step, from 1, and how many the round has.
    certain_shares : int
        Number of sites whose noise is certainly in the total and unknown to the hub, even if as many sites as the
        roster tolerates vanish and as many others collude.
    """

    task: bytes
    step: int
    n_steps: int
    certain_shares: int


#: Returns the integers that a site adds to the total of a step.
Work = Callable[[Assignment], Integers]


@dataclass
class _Session:
    """Everything that a site knows about one attempt at a round."""

    roster: bytes
    round: int
    attempt: int
    n_steps: int
    identity: bytes
    own_seeds: list[bytes]
    mask_seeds: list[bytes]
    sealing_seed: bytes
    joined: list[int] = field(default_factory=list)
    adverts: list[bytes] = field(default_factory=list)
    context: bytes = b""
    bundles: dict[int, bytes] = field(default_factory=dict)
    step: int = 0
    active: list[int] = field(default_factory=list)
    step_context: bytes = b""
    survivors: list[int] = field(default_factory=list)
    answers: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)

    def advert(self, place: int) -> Advert:
        """Return the keys of a site that has joined."""
        return Advert.from_bytes(self.adverts[self.joined.index(place)])


class Member:
    """One site in secure aggregation.

    Parameters
    ----------
    name : str
    key : SigningKey
        The site's key; its public half is in the roster.
    agreed : Roster
        The roster that the site's operator has agreed to. A round in which anybody else takes part is refused.
    terms : bytes
        What the site has agreed to (epsilon, bounds, ...). A round under other terms is refused.
    """

    def __init__(self, name: str, key: SigningKey, agreed: Roster, terms: bytes) -> None:
        self.name, self.key, self.agreed, self.terms = name, key, agreed, terms
        self._session: _Session | None = None
        self._newest = (0, 0)

    @property
    def round(self) -> int:
        """Newest round that this site has joined."""
        return self._newest[0]

    @property
    def attempt(self) -> int:
        """Newest attempt at that round."""
        return self._newest[1]

    @property
    def n_steps(self) -> int:
        """Number of steps of that round; 0 if there is none."""
        return 0 if self._session is None else self._session.n_steps

    def answer(self, data: bytes, work: Work | None = None) -> bytes:
        """Return the answer to a request of the hub, or refuse.

        The same request gets the same answer. A second, different request for the same stage and step is refused: it
        could only serve to use keys twice. `work` is called once per step, after everything has been checked.
        """
        try:
            request = Message.from_bytes(data, REQUEST)
            mark, name = digest(data), f"{request.stage} {request.step}"
            if request.stage == JOIN:
                known = self._known_join(request, mark)
                return known if known is not None else self._remember(name, mark, self._join(request))
            session = self._current(request)
            if name in session.answers:
                if session.answers[name][0] != mark:
                    raise AggregationRefused(
                        f"stage {name!r} was asked twice with different content: keys of a step are used once"
                    )
                return session.answers[name][1]
            reply = self._go_on(session, request, work)
        except MessageError as error:
            raise AggregationRefused(f"the request cannot be used: {error}") from None
        return self._remember(name, mark, reply)

    def _go_on(self, session: _Session, request: Message, work: Work | None) -> Message:
        if request.stage == SHARE:
            return self._share(session, request)
        if request.stage == MASK:
            if work is None:
                raise AggregationRefused("a step was asked for, but there is nothing to add up")
            return self._mask(session, request, work)
        return self._confirm(session, request) if request.stage == CONFIRM else self._reveal(session, request)

    # ------------------------------------------------------------ joining

    def _known_join(self, request: Message, mark: bytes) -> bytes | None:
        wanted = (request.number("round"), request.number("attempt"))
        session = self._session
        if session is not None and wanted == (session.round, session.attempt):
            if session.answers["join 0"][0] != mark:
                raise AggregationRefused(f"round {wanted[0]} was announced twice with different content")
            return session.answers["join 0"][1]
        if wanted <= self._newest:
            raise AggregationRefused(
                f"round {wanted[0]}, attempt {wanted[1]} is over (the newest is {self._newest[0]}, "
                f"attempt {self._newest[1]}): a step is not played again"
            )
        return None

    def _join(self, request: Message) -> Message:
        roster = Roster.from_bytes(request.arrays["roster"].tobytes() if "roster" in request.arrays else b"")
        self.agreed.check(roster)
        check_own(roster, self.name, self.key.public)
        if request.blob("terms") != digest(self.terms):
            raise AggregationRefused(
                "the hub asks for other terms (epsilon, delta, bounds or number of cells) than this site has agreed to"
            )
        n_steps = request.number("n_steps")
        if not 1 <= n_steps <= 100:
            raise AggregationRefused(f"a round of {n_steps} steps")
        number, attempt = request.number("round"), request.number("attempt")
        identity = messages.session_id(roster.digest, number, attempt, n_steps, self.terms)
        session = _Session(
            roster.to_bytes(), number, attempt, n_steps, identity,
            [new_seed() for _ in range(n_steps)], [new_seed() for _ in range(n_steps)], new_seed(),
        )  # fmt: skip
        sealing = AgreementKey(session.sealing_seed).public
        masking = [AgreementKey(seed).public for seed in session.mask_seeds]
        signature = self.key.sign(Advert.signed_text(identity, self.name, sealing, masking))
        advert = Advert(sealing, masking, signature)
        self._session, self._newest = session, (number, attempt)
        return Message(JOIN, 0, {}, {"advert": messages.as_rows([advert.to_bytes()])})

    # ------------------------------------------------------------ sharing secrets

    def _share(self, session: _Session, request: Message) -> Message:
        roster = self._roster(session)
        joined = request.places("joined", len(roster.names))
        me = roster.names.index(self.name)
        if len(joined) < roster.least:
            raise AggregationRefused(
                f"{len(joined)} sites take part; this study needs at least {roster.least}, "
                "so that no total is that of a few sites"
            )
        if me not in joined:
            raise AggregationRefused("the list of sites that take part lacks this site, though it has joined")
        rows = request.rows("adverts", len(joined), Advert.length(session.n_steps))
        for place, row in zip(joined, rows, strict=True):
            name, advert = roster.names[place], Advert.from_bytes(row)
            text = Advert.signed_text(session.identity, name, advert.sealing, advert.masking)
            if not is_signed(roster.keys[name], advert.signature, text):
                raise AggregationRefused(
                    f"the keys of site {name} are not signed by it for this list of sites: they may be the hub's own, "
                    "or it was shown another list"
                )
        context = messages.context_id(session.identity, joined, rows)
        session.joined, session.adverts, session.context = joined, rows, context
        bundles = [bytearray() for _ in joined]
        needed = threshold(len(joined), roster.tolerance)
        for own, mask in zip(session.own_seeds, session.mask_seeds, strict=True):
            for secret in (own, mask):
                for bundle, share in zip(bundles, split(secret, needed, len(joined)), strict=True):
                    bundle += share
        key, sealed = AgreementKey(session.sealing_seed), []
        for place, bundle in zip(joined, bundles, strict=True):
            if place == me:
                session.bundles[me] = bytes(bundle)
            else:
                pair_key = _sealing_key(key, session.advert(place), context, me, place)
                sealed.append(seal(pair_key, bytes(bundle), context))
        marks = [own_mark(seed, context) for seed in session.own_seeds]
        arrays = {"sealed": messages.as_rows(sealed), "marks": messages.as_rows(marks)}
        return Message(SHARE, 0, {}, arrays)

    # ------------------------------------------------------------ a step

    def _mask(self, session: _Session, request: Message, work: Work) -> Message:
        roster = self._roster(session)
        me = roster.names.index(self.name)
        if not session.context or request.step != session.step + 1 or request.step > session.n_steps:
            raise AggregationRefused(f"step {request.step} does not follow step {session.step} of {session.n_steps}")
        if session.step and f"{REVEAL} {session.step}" not in session.answers:
            raise AggregationRefused(f"step {request.step} begins before step {session.step} has ended")
        active = request.places("active", len(roster.names))
        allowed = session.survivors if session.step else session.joined
        self._check_enough(session, active, "this step has")
        if me not in active or not set(active) <= set(allowed):
            raise AggregationRefused("the sites of this step are not those that remained from the one before")
        if not session.step:
            self._open_bundles(session, request, active, me)
        task = request.arrays["task"].tobytes() if "task" in request.arrays else b""
        step_context = messages.step_id(session.context, request.step, active, task)
        assigned = Assignment(
            task, request.step, session.n_steps, certain_shares(len(session.joined), roster.tolerance)
        )
        vector = np.ascontiguousarray(work(assigned), dtype=np.int64)
        masked = to_residues(vector).copy()
        self._add_masks(session, masked, request.step, step_context, active, me)
        session.step, session.active, session.step_context, session.survivors = request.step, active, step_context, []
        return Message(MASK, request.step, {}, {"masked": masked.view(np.int64)})

    def _add_masks(
        self, session: _Session, masked: Residues, step: int, step_context: bytes, active: Sequence[int], me: int
    ) -> None:
        """Add the own mask, and those that this site has in common with every other: one adds, one subtracts."""
        masked += own_mask(session.own_seeds[step - 1], step_context, len(masked))
        key = AgreementKey(session.mask_seeds[step - 1])
        for place in active:
            if place != me:
                mask = pair_mask(key, session.advert(place).masking[step - 1], step_context, len(masked))
                if me < place:
                    masked += mask
                else:
                    masked -= mask

    def _open_bundles(self, session: _Session, request: Message, active: Sequence[int], me: int) -> None:
        """Decrypt the shares of all sites that are still there; a wrong one means that the hub has interfered."""
        senders = [place for place in active if place != me]
        roster = self._roster(session)
        width = 2 * session.n_steps * SHARE_BYTES
        key = AgreementKey(session.sealing_seed)
        for place, sealed in zip(senders, request.rows("sealed", len(senders), width + 16), strict=True):
            pair_key = _sealing_key(key, session.advert(place), session.context, place, me)
            bundle = unseal(pair_key, sealed, session.context)
            if bundle is None:
                raise AggregationRefused(
                    f"what site {roster.names[place]} sent to this site was changed on the way, "
                    "or it was told of another list of sites"
                )
            session.bundles[place] = bundle

    def _confirm(self, session: _Session, request: Message) -> Message:
        roster = self._roster(session)
        self._check_step(session, request, MASK)
        survivors = request.places("survivors", len(roster.names))
        if not set(survivors) <= set(session.active):
            raise AggregationRefused("the list of vectors that have arrived names sites that were not in this step")
        if roster.names.index(self.name) not in survivors:
            raise AggregationRefused("the hub says that this site's vector has not arrived, though it answered")
        self._check_enough(session, survivors, "the total would be of")
        session.survivors = survivors
        signature = self.key.sign(messages.survivors_text(session.step_context, survivors))
        return Message(CONFIRM, request.step, {}, {"signature": messages.as_rows([signature])})

    def _reveal(self, session: _Session, request: Message) -> Message:
        roster = self._roster(session)
        self._check_step(session, request, CONFIRM)
        signers = request.places("signers", len(roster.names))
        signatures = request.rows("signatures", len(signers), messages.SIGNATURE)
        needed = witnesses_needed(len(session.joined), roster.tolerance)
        if len(signers) < needed or not set(signers) <= set(session.survivors):
            raise AggregationRefused(
                f"{len(signers)} sites confirm the list of vectors that have arrived; {needed} of the "
                f"{len(session.joined)} sites must, so that the hub cannot tell different sites different lists"
            )
        text = messages.survivors_text(session.step_context, session.survivors)
        for place, signature in zip(signers, signatures, strict=True):
            if not is_signed(roster.keys[roster.names[place]], signature, text):
                raise AggregationRefused(
                    f"site {roster.names[place]} has not confirmed this list: "
                    "the hub has told different sites different lists"
                )
        shares = [
            messages.share_of(session.bundles[place], request.step, place in session.survivors)
            for place in session.active
        ]
        # a secret is used once: after its step, nothing here can be asked for it again
        index = request.step - 1
        session.own_seeds[index] = session.mask_seeds[index] = bytes(16)
        return Message(REVEAL, request.step, {}, {"shares": messages.as_rows(shares)})

    # ------------------------------------------------------------ checks

    def _current(self, request: Message) -> _Session:
        session = self._session
        if session is None or request.blob("session") != session.identity:
            raise AggregationRefused("the request belongs to another session: a step is not played again")
        return session

    def _check_step(self, session: _Session, request: Message, before: str) -> None:
        if request.step != session.step or f"{before} {request.step}" not in session.answers:
            raise AggregationRefused(f"stage {request.stage!r} of step {request.step} comes out of order")

    def _check_enough(self, session: _Session, places: Sequence[int], what: str) -> None:
        roster = self._roster(session)
        fewest = len(session.joined) - roster.tolerance
        if len(places) < fewest:
            raise AggregationRefused(
                f"{what} {len(places)} of {len(session.joined)} sites; fewer than {fewest} would have too little noise"
            )

    def _roster(self, session: _Session) -> Roster:
        return _read_roster(session.roster)

    def _remember(self, name: str, mark: bytes, reply: Message) -> bytes:
        assert self._session is not None
        data = reply.to_bytes(REPLY)
        self._session.answers[name] = (mark, data)
        return data

    # ------------------------------------------------------------ storage

    def to_bytes(self) -> bytes:
        """Return what this site must keep until the next request. It contains secrets: nobody else may read it."""
        meta: dict[str, Any] = {"name": self.name, "newest": list(self._newest)}
        if self._session is not None:
            held = vars(self._session).copy()
            held["answers"] = {name: [m.hex(), d.hex()] for name, (m, d) in self._session.answers.items()}
            held["bundles"] = {str(place): bundle.hex() for place, bundle in self._session.bundles.items()}
            meta["session"] = {name: _as_json(value) for name, value in held.items()}
        return pack(_KIND, meta, {})

    def restore(self, data: bytes) -> None:
        """Go on from :meth:`to_bytes`."""
        meta, _ = unpack(data, kind=_KIND)
        if meta["name"] != self.name:
            raise ValueError(f"this state belongs to site {meta['name']!r}, not to {self.name!r}")
        self._newest = (meta["newest"][0], meta["newest"][1])
        held = meta.get("session")
        if held is None:
            self._session = None
            return
        for name in ("roster", "identity", "sealing_seed", "context", "step_context"):
            held[name] = bytes.fromhex(held[name])
        for name in ("own_seeds", "mask_seeds", "adverts"):
            held[name] = [bytes.fromhex(item) for item in held[name]]
        held["answers"] = {k: (bytes.fromhex(m), bytes.fromhex(d)) for k, (m, d) in held["answers"].items()}
        held["bundles"] = {int(place): bytes.fromhex(bundle) for place, bundle in held["bundles"].items()}
        self._session = _Session(**held)


def threshold(n_sites: int, tolerance: int) -> int:
    """Return how many shares recover a secret: as many as there are sites if all that may vanish have."""
    return n_sites - tolerance


def witnesses_needed(n_sites: int, tolerance: int) -> int:
    """Return how many sites must sign a list: two lists cannot both have so many, as an honest site signs one."""
    return (n_sites + tolerance) // 2 + 1


def certain_shares(n_sites: int, tolerance: int) -> int:
    """Return how many shares of noise the hub cannot know if t of n sites vanish and t others collude with it."""
    return n_sites - 2 * tolerance


def own_mark(seed: bytes, context: bytes) -> bytes:
    """Return a commitment to the seed of an own mask, by which the hub recognises wrong shares."""
    return derive(seed, b"fcac own mark" + context)


@lru_cache(maxsize=16)
def _read_roster(data: bytes) -> Roster:
    return Roster.from_bytes(data)


def _sealing_key(key: AgreementKey, advert: Advert, context: bytes, source: int, target: int) -> bytes:
    """Return the key for what one site sends to another through the hub."""
    purpose = b"fcac seal" + context + source.to_bytes(4, "big") + target.to_bytes(4, "big")
    return key.agree(advert.sealing, purpose)


def _as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return [_as_json(item) for item in value] if isinstance(value, list) else value

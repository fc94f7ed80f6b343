"""The hub's side of the protocol, as a state machine without input or output.

One :class:`Collector` plays one attempt at a round: :meth:`Collector.requests` says what to ask whom,
:meth:`Collector.take` takes an answer, :meth:`Collector.close_stage` goes on with those that have answered. What had
come in when a stage was closed determines everything after it, so a hub that stores it can go on after a crash.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fcac._typing import Integers
from fcac.aggregation import messages
from fcac.aggregation.keys import AgreementKey, digest, is_signed
from fcac.aggregation.masks import Residues, own_mask, pair_mask
from fcac.aggregation.member import certain_shares, own_mark, threshold, witnesses_needed
from fcac.aggregation.messages import (
    CONFIRM,
    JOIN,
    MASK,
    REPLY,
    REQUEST,
    REVEAL,
    SHARE,
    Advert,
    Message,
    MessageError,
)
from fcac.aggregation.roster import Roster
from fcac.aggregation.shares import SHARE_BYTES, combine
from fcac.exceptions import TooFewSites


class Collector:
    """Adds up the vectors of many sites without seeing any of them.

    Parameters
    ----------
    roster : Roster
        Every site checks it against the one that its operator has agreed to.
    round, attempt : int
        Both together never occur twice.
    n_steps : int
        Number of totals in this round.
    terms : bytes
        What sites must have agreed to.
    """

    def __init__(
        self,
        roster: Roster,
        round: int,
        attempt: int,
        n_steps: int,
        terms: bytes,
    ) -> None:
        self.roster, self.n_steps = roster, n_steps
        self.round, self.attempt = round, attempt
        self.stage, self.step = JOIN, 0
        self.total: Integers | None = None
        #: Sites whose vectors are in the total of the latest step.
        self.survivors: list[int] = []
        #: Sites that have joined this attempt, and those that are still there.
        self.joined: list[int] = []
        self.active: list[int] = list(range(len(roster.names)))
        self._terms = terms
        self._session = messages.session_id(roster.digest, round, attempt, n_steps, terms)
        self._answers: dict[int, Message] = {}
        self._places = {name: place for place, name in enumerate(roster.names)}
        self._adverts: dict[int, bytes] = {}
        self._sealed: dict[int, dict[int, bytes]] = {}
        self._marks: dict[int, list[bytes]] = {}
        self._context = self._step_context = self._task = b""
        self._size = 0
        self._masked: dict[int, Residues] = {}
        self._signatures: dict[int, bytes] = {}

    # ------------------------------------------------------------ asking and taking

    def requests(self) -> dict[str, bytes]:
        """Return what to ask every site that has not answered in this stage."""
        build = {
            JOIN: self._ask_join, SHARE: self._ask_share, MASK: self._ask_mask,
            CONFIRM: self._ask_confirm, REVEAL: self._ask_reveal,
        }[self.stage]  # fmt: skip
        waiting = [place for place in self._asked() if place not in self._answers]
        return {self.roster.names[place]: build(place).to_bytes(REQUEST) for place in waiting}

    def _asked(self) -> list[int]:
        return self.survivors if self.stage in (CONFIRM, REVEAL) else self.active

    def take(self, name: str, data: bytes) -> None:
        """Take an answer; raise ``ValueError`` if it is not one to this stage. The site then counts as vanished."""
        place = self._places.get(name)
        if place is None or place not in self._asked():
            raise MessageError(f"site {name} was not asked")
        reply = Message.from_bytes(data, REPLY)
        if (reply.stage, reply.step) != (self.stage, self.step):
            raise MessageError(f"site {name} answers stage {reply.stage!r} of step {reply.step}, not {self.stage!r}")
        check = {
            JOIN: self._check_join, SHARE: self._check_share, MASK: self._check_mask,
            CONFIRM: self._check_confirm, REVEAL: self._check_reveal,
        }[self.stage]  # fmt: skip
        check(place, reply)
        self._answers[place] = reply

    def waiting(self) -> list[str]:
        """Return the sites that have not answered in this stage."""
        return [self.roster.names[place] for place in self._asked() if place not in self._answers]

    def close_stage(self) -> None:
        """Go on with the sites that have answered; after the stage "reveal" the total of the step is in `total`.

        If too many have vanished, `TooFewSites` is raised, and nothing was learned of this step.
        """
        answers, self._answers = self._answers, {}
        close = {
            JOIN: self._close_join, SHARE: self._close_share, MASK: self._close_mask,
            CONFIRM: self._close_confirm, REVEAL: self._close_reveal,
        }[self.stage]  # fmt: skip
        close(answers)

    def begin_step(self, task: bytes) -> None:
        """Begin the next step. Masks cancel only between sites that were given the same task."""
        if self.stage != MASK or self._task or self.step >= self.n_steps:
            raise ValueError("a step begins when the one before has ended")
        self.step += 1
        self._task = task
        self._step_context = messages.step_id(self._context, self.step, self.active, task)
        self._size, self.total = 0, None

    @property
    def in_step(self) -> bool:
        """Whether a step has begun and not ended."""
        return self.stage in (CONFIRM, REVEAL) or bool(self._task)

    @property
    def certain_shares(self) -> int:
        """Number of shares for which every site sizes its noise: those that joined, less t that vanish and t others."""
        return certain_shares(len(self.joined), self.roster.tolerance)

    def _enough(self, places: list[int], what: str) -> None:
        fewest = len(self.joined) - self.roster.tolerance
        if len(places) < fewest:
            raise TooFewSites(f"{len(places)} of {len(self.joined)} sites {what}; at least {fewest} are needed")

    def _bits(self, places: list[int]) -> NDArray[np.uint8]:
        return messages.as_bits(places, len(self.roster.names))

    # ------------------------------------------------------------ join, share

    def _ask_join(self, place: int) -> Message:
        meta = {
            "round": self.round, "attempt": self.attempt, "n_steps": self.n_steps, "terms": digest(self._terms).hex()
        }  # fmt: skip
        return Message(JOIN, 0, meta, {"roster": np.frombuffer(self.roster.to_bytes(), dtype=np.uint8)})

    def _check_join(self, place: int, reply: Message) -> None:
        (row,) = reply.rows("advert", 1, Advert.length(self.n_steps))
        advert, name = Advert.from_bytes(row), self.roster.names[place]
        text = Advert.signed_text(self._session, name, advert.sealing, advert.masking)
        if not is_signed(self.roster.keys[name], advert.signature, text):
            raise MessageError(f"the keys of site {name} are not signed by it")

    def _close_join(self, answers: Mapping[int, Message]) -> None:
        if len(answers) < self.roster.least:
            raise TooFewSites(f"{len(answers)} sites take part; at least {self.roster.least} are needed")
        self.joined = self.active = sorted(answers)
        self._adverts = {place: answers[place].rows("advert", 1)[0] for place in self.joined}
        self._context = messages.context_id(self._session, self.joined, messages.sorted_by_place(self._adverts))
        self.stage = SHARE

    def _ask_share(self, place: int) -> Message:
        arrays: dict[str, NDArray[Any]] = {
            "joined": self._bits(self.joined),
            "adverts": messages.as_rows(messages.sorted_by_place(self._adverts)),
        }
        return Message(SHARE, 0, {"session": self._session.hex()}, arrays)

    def _check_share(self, place: int, reply: Message) -> None:
        reply.rows("sealed", len(self.joined) - 1, 2 * self.n_steps * SHARE_BYTES + 16)
        reply.rows("marks", self.n_steps, messages.KEY)

    def _close_share(self, answers: Mapping[int, Message]) -> None:
        self._enough(sorted(answers), "have shared their secrets")
        self.active = sorted(answers)
        for place, reply in answers.items():
            others = [other for other in self.joined if other != place]
            self._sealed[place] = dict(zip(others, reply.rows("sealed", len(others)), strict=True))
            self._marks[place] = reply.rows("marks", self.n_steps)
        self.stage = MASK

    # ------------------------------------------------------------ a step

    def _ask_mask(self, place: int) -> Message:
        arrays: dict[str, NDArray[Any]] = {
            "active": self._bits(self.active),
            "task": np.frombuffer(self._task, dtype=np.uint8),
        }
        if self.step == 1:
            sealed = [self._sealed[other][place] for other in self.active if other != place]
            arrays["sealed"] = messages.as_rows(sealed)
        return Message(MASK, self.step, {"session": self._session.hex()}, arrays)

    def _check_mask(self, place: int, reply: Message) -> None:
        vector = reply.arrays.get("masked")
        if vector is None or vector.dtype != np.int64 or vector.ndim != 1 or not len(vector):
            raise MessageError(f"site {self.roster.names[place]} has sent no vector")
        if self._size and len(vector) != self._size:
            raise MessageError(f"site {self.roster.names[place]} has sent {len(vector)} numbers, not {self._size}")
        self._size = len(vector)

    def _close_mask(self, answers: Mapping[int, Message]) -> None:
        self._enough(sorted(answers), "have sent their vectors")
        self.survivors = sorted(answers)
        self._masked = {place: answers[place].arrays["masked"].view(np.uint64) for place in self.survivors}
        self.stage = CONFIRM

    def _ask_confirm(self, place: int) -> Message:
        arrays: dict[str, NDArray[Any]] = {"survivors": self._bits(self.survivors)}
        return Message(CONFIRM, self.step, {"session": self._session.hex()}, arrays)

    def _check_confirm(self, place: int, reply: Message) -> None:
        (signature,) = reply.rows("signature", 1, messages.SIGNATURE)
        name = self.roster.names[place]
        if not is_signed(self.roster.keys[name], signature, self._survivors_text()):
            raise MessageError(f"site {name} has confirmed something else")

    def _survivors_text(self) -> bytes:
        return messages.survivors_text(self._step_context, self.survivors)

    def _close_confirm(self, answers: Mapping[int, Message]) -> None:
        needed = witnesses_needed(len(self.joined), self.roster.tolerance)
        if len(answers) < needed:
            raise TooFewSites(f"{len(answers)} sites confirm the list of vectors; at least {needed} must")
        self._signatures = {place: answers[place].rows("signature", 1)[0] for place in sorted(answers)[:needed]}
        self.stage = REVEAL

    def _ask_reveal(self, place: int) -> Message:
        arrays: dict[str, NDArray[Any]] = {
            "signers": self._bits(list(self._signatures)),
            "signatures": messages.as_rows(messages.sorted_by_place(self._signatures)),
        }
        return Message(REVEAL, self.step, {"session": self._session.hex()}, arrays)

    def _check_reveal(self, place: int, reply: Message) -> None:
        reply.rows("shares", len(self.active), SHARE_BYTES)

    def _close_reveal(self, answers: Mapping[int, Message]) -> None:
        needed, holders = threshold(len(self.joined), self.roster.tolerance), sorted(answers)
        if len(holders) < needed:
            raise TooFewSites(f"{len(holders)} sites have sent their shares; {needed} are needed")
        collected: dict[int, dict[int, bytes]] = {place: {} for place in self.active}
        for holder in holders[:needed]:
            shares = answers[holder].rows("shares", len(self.active))
            for owner, share in zip(self.active, shares, strict=True):
                collected[owner][self.joined.index(holder)] = share
        total = np.zeros(self._size, dtype=np.uint64)
        for place in self.survivors:
            total += self._masked[place]
            seed = self._secret(place, collected[place])
            if own_mark(seed, self._context) != self._marks[place][self.step - 1]:
                raise TooFewSites(f"the shares of site {self.roster.names[place]} do not fit together")
            total -= own_mask(seed, self._step_context, self._size)
        here = set(self.survivors)
        for place in self.active:
            if place not in here:
                total -= self._left_over(place, self._secret(place, collected[place]))
        self.total = total.view(np.int64)
        self._masked = {}
        # a site that vanished after its vector had arrived is in this total, but not in the next step
        self.active = sorted(answers)
        self.stage, self._task = MASK, b""

    def _secret(self, owner: int, shares: Mapping[int, bytes]) -> bytes:
        secret = combine(shares)
        if secret is None:
            raise TooFewSites(f"the shares of site {self.roster.names[owner]} do not fit together")
        return secret

    def _left_over(self, gone: int, seed: bytes) -> Residues:
        """Return the masks that remain in the sum because a site that shares them has vanished."""
        key = AgreementKey(seed)
        if key.public != Advert.from_bytes(self._adverts[gone]).masking[self.step - 1]:
            raise TooFewSites(f"the shares of site {self.roster.names[gone]} do not fit together")
        rest = np.zeros(self._size, dtype=np.uint64)
        for place in self.survivors:
            public = Advert.from_bytes(self._adverts[place]).masking[self.step - 1]
            mask = pair_mask(key, public, self._step_context, self._size)
            if place < gone:
                rest += mask
            else:
                rest -= mask
        return rest

"""What a state has cost, and receipts for it: they show whether a ledger has forgotten what left the site."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fcac.exceptions import PrivacyError

_KEPT_RECEIPTS = 50


@dataclass(frozen=True)
class Receipt:
    """Proof that a release was charged: a random seal that the ledger keeps too, the cost, and the round.

    An agreement (:mod:`fcac.privacy.agreement`) has no round, 0, and may have taken a part of delta, `slack`.
    """

    seal: str
    rho: float
    round: int
    slack: float = 0.0


@dataclass(frozen=True)
class Account:
    """What all releases of a state have cost. It holds nothing that depends on rows, so it may leave the site.

    The cost is per "row" as soon as one release had no record ids. With a ledger, `spent` is the epsilon that nobody in
    it can have exceeded when the latest release was charged, and `budget` its budget then.
    """

    rho: float = 0.0
    unit: str = "person"
    spent: float | None = None
    budget: float | None = None
    receipts: tuple[Receipt, ...] = ()

    def after(
        self, rho: float, unit: str, spent: float | None, budget: float | None, receipt: Receipt | None
    ) -> Account:
        """Return the account after one more release."""
        receipts = self.receipts if receipt is None else (*self.receipts, receipt)[-_KEPT_RECEIPTS:]
        both = "person" if self.unit == unit == "person" else "row"
        return Account(self.rho + rho, both, spent, budget, receipts)

    def told(self, spent: float, budget: float | None) -> Account:
        """Return the account with what the ledger says now; without a ledger (no budget) it stays as it is."""
        return self if budget is None else replace(self, spent=spent, budget=budget)

    def to_json(self) -> dict[str, Any]:
        """Return the account as JSON values."""
        receipts = [[receipt.seal, receipt.rho, receipt.round] for receipt in self.receipts]
        return {"rho": self.rho, "unit": self.unit, "spent": self.spent, "budget": self.budget, "receipts": receipts}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Account:
        """Rebuild an account from :meth:`to_json`, and check it."""
        try:
            receipts = tuple(Receipt(str(seal), float(rho), int(round)) for seal, rho, round in stored["receipts"])
            spent, budget = (None if stored[key] is None else float(stored[key]) for key in ("spent", "budget"))
            account = cls(float(stored["rho"]), str(stored["unit"]), spent, budget, receipts)
        except (KeyError, TypeError, ValueError) as error:
            raise PrivacyError(f"state: its account is damaged ({error})") from None
        if account.unit not in ("row", "person") or not account.rho >= 0:
            raise PrivacyError("state: its account is damaged")
        return account

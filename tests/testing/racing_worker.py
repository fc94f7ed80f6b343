"""A program that spends one ledger's budget, charge by charge, beside others, until it is refused or killed.

Usage: python racing_worker.py FOLDER NUMBER BUDGET. What it "sends" is a file with the receipt of the charge.
"""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path

from fcac.persistence import write_atomic
from fcac.privacy.ledger import BudgetExceeded, Ledger

#: Cost of one charge.
RHO = 0.05


def main(folder: Path, number: int, budget: float) -> None:
    """Charge and send until the budget is used up."""
    ledger = Ledger(folder / "site.db", budget)
    while True:
        people = {"record_ids": ["ann", "bob"]} if number % 2 else {}
        try:
            admission = ledger.admit(f"site-{number}", RHO, **people)  # type: ignore[arg-type]
        except BudgetExceeded:
            break
        if admission.admitted is not None and not admission.admitted.all():
            break  # both had paid as much as they may: the charge admits nobody, and nothing is sent
        receipt = admission.receipt
        sent = json.dumps([receipt.seal, receipt.rho, receipt.round]).encode()
        write_atomic(folder / "sent" / uuid.uuid4().hex, sent)
        ledger.complete(admission.number)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))

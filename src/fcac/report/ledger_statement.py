"""The privacy statement of one ledger, for a data protection officer: one HTML page that prints on one sheet."""

from __future__ import annotations

import datetime

from fcac.privacy import Ledger
from fcac.privacy.officer_sheet import officer_sheet
from fcac.report.page import fill


def ledger_statement(ledger: Ledger, n_people: int | None = None, overlap: int | None = None) -> str:
    """Return the statement as one HTML document; see :func:`fcac.privacy.officer_sheet.officer_sheet`."""
    return fill(
        "ledger_statement.html",
        day=datetime.datetime.now(datetime.UTC).date().isoformat(),
        sheet=officer_sheet(ledger, n_people, overlap),
    )

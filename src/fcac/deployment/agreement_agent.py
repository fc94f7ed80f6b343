"""How a site takes part in an agreement on bounds and levels: counts under its own policy, charged to its own ledger.

A site answers two questions about one schema, each once: the coarse counts and the fine ones. Both answers are stored
before they are sent, and sent again if they are asked for again. The agreed schema then replaces the site's own, if it
settles nothing that was settled before. The order is: check, charge, draw, store, send.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fcac import persistence
from fcac.deployment.audit_log import AuditLog
from fcac.deployment.policy import Policy, PolicyRefusal, described
from fcac.deployment.settings import SiteSettings, schema_digest
from fcac.deployment.site_agent import LOCK_SECONDS, write_log
from fcac.privacy.account import Receipt
from fcac.privacy.agreement import Prices, check_agreed, open_columns, prices
from fcac.privacy.agreement_counts import NoisedCounts, SiteValues, count_coarse, count_fine
from fcac.privacy.ledger import Ledger
from fcac.privacy.receipts import receipts_in
from fcac.privacy.record_ids import check_record_ids, ids_in_form, names_somebody
from fcac.privacy.samplers import OpenDPSampler, Sampler
from fcac.tables.new_rows import NewRowFinder
from fcac.tables.read_options import ReadOptions
from fcac.tables.schema import Schema

#: Where, below a site's state directory, its answers are kept.
FOLDER = "agreement"

_MOST_BINS = 1024


def agreement_receipts(state: Path) -> list[Receipt]:
    """Return receipts for the answers that a site has given in agreements."""
    folder = state / FOLDER
    return [receipt for some in receipts_in(folder).values() for receipt in some] if folder.is_dir() else []


class AgreementAgent:
    """Answers the questions of an agreement for one site.

    The `agree` of its settings is the epsilon that the operator allows for one; None: the site takes no part.
    """

    def __init__(self, settings: SiteSettings, sampler: Sampler | None = None) -> None:
        self.settings, self.state = settings, Path(settings.state)
        self.schema = Schema.load(settings.schema)
        self.policy, self.audit = Policy.load(self.state), AuditLog(self.state)
        self.sampler: Sampler = OpenDPSampler() if sampler is None else sampler

    def answer(self, request: bytes) -> bytes:
        """Return the bytes of the site's answer to a request; empty for an agreed schema, which is taken over."""
        asked = _read_request(request)
        self.state.mkdir(parents=True, exist_ok=True)
        with persistence.locked(self.state / "lock", LOCK_SECONDS):
            if asked["stage"] == "schema":
                self._take_schema(asked)
                return b""
            return self._count(asked, hashlib.sha256(request).hexdigest())

    def ledger(self) -> Ledger:
        """Return the ledger that agreements are charged to: the one of the site's rounds."""
        if self.settings.budget is None:
            raise ValueError("budget is missing: the epsilon that this site may spend over all rounds has no default")
        return Ledger(self.state / "ledger.db", self.settings.budget, self.settings.delta)

    def finder(self) -> NewRowFinder:
        """Return the finder of the rows that are counted: all there are, gaps included."""
        settings, values = self.settings, SiteValues(*open_columns(self.schema))
        fields = [] if values.plain_schema is None else list(values.plain_schema.fields)
        fields += [dataclasses.replace(column, missing="native") for column in values.categories]
        read = dataclasses.replace(ReadOptions.from_dict(settings.read), forgiving=True)
        return NewRowFinder(settings.data, Schema(fields), settings.settle, settings.record_id, read)

    def _path(self, of: str, name: str) -> Path:
        return self.state / FOLDER / f"{of[:16]}-{name}"

    # ------------------------------------------------------------ counts

    def _count(self, asked: dict[str, Any], request: str) -> bytes:
        stage, epsilon = asked["stage"], self.settings.agree
        if epsilon is None:
            raise PolicyRefusal("the hub asks for an agreement, and this site was started without --agree", "data")
        if asked["of"] != schema_digest(self.schema):
            raise PolicyRefusal("the hub asks for an agreement on another schema than this site's", "data")
        path = self._path(asked["of"], f"{stage}.fcac")
        if path.exists():
            stored, _ = persistence.read(path, kind="agreement")
            if stored["request"] != request:
                raise PolicyRefusal(f"the {stage} counts of this schema were asked for before, in another way", "data")
            self.audit.add("agreement sent again", stage=stage)
            return path.read_bytes()
        self.policy.check_plain()
        self.policy.check_schema(self.schema)
        numbers, categories = open_columns(self.schema, asked["levels"])
        if len(asked["edges"]) != (len(numbers) if stage == "fine" else 0):
            raise ValueError("the request has bins for other columns than those without bounds")
        self.sampler.check_ready()
        price = prices(epsilon, self.settings.delta, len(numbers), len(categories))
        values, people = self._read(SiteValues(numbers, categories))
        return self._pay_and_draw(asked, price, values, people, path, request)

    def _pay_and_draw(
        self, asked: dict[str, Any], price: Prices, values: SiteValues, people: list[str] | None, path: Path,
        request: str,
    ) -> bytes:  # fmt: skip
        stage, ledger, name = asked["stage"], self.ledger(), self.settings.name
        rho, slack = (price.coarse, price.slack) if stage == "coarse" else (price.fine, 0.0)
        ledger.verify(agreement_receipts(self.state))
        # written first: what cannot be logged is not done
        self.audit.add("agreement begun", stage=stage, epsilon=self.settings.agree)
        what = f"agreement: {stage} counts of {len(values.numbers) + len(values.categories)} columns"
        admission = ledger.admit(name, rho, what=what, slack=slack, record_ids=people)
        counts: NoisedCounts
        if stage == "coarse":
            counts = count_coarse(values, rho, slack, self.sampler, people, admission.admitted)
        else:
            edges = [np.linspace(low, high, n + 1) for low, high, n in asked["edges"]]
            counts = count_fine(values, edges, rho, self.sampler, people, admission.admitted)
        facts = {"site": name, "stage": stage, "of": asked["of"], "request": request}
        data = counts.to_bytes(**facts, seal=admission.receipt.seal, rho=rho, slack=slack)
        path.parent.mkdir(exist_ok=True, mode=0o700)
        persistence.write_atomic(self._path(asked["of"], "before.toml"), self.schema.to_toml().encode())
        persistence.write_atomic(path, data)
        ledger.complete(admission.number)
        self.audit.add("agreement answered", stage=stage)
        write_log(self.state, f"agreement: {stage} counts sent; spent: {ledger.summary_line(name).partition(': ')[2]}")
        return data

    def _read(self, values: SiteValues) -> tuple[SiteValues, list[str] | None]:
        ids: list[Any] = []
        for batch, tags in self.finder().all_batches():
            if tags is not None:
                named = [names_somebody(tag) for tag in tags]
                batch = batch.filter(pa.array(named, pa.bool_()))
                tags = [tag for tag, known in zip(tags, named, strict=True) if known]
            values.add(batch)
            ids += tags or []
        if self.settings.record_id is None:
            return values, None
        return values, check_record_ids(ids_in_form(ids, self.schema.id_form))

    # ------------------------------------------------------------ the agreed schema

    def _take_schema(self, asked: dict[str, Any]) -> None:
        agreed, before = Schema.from_toml(asked["schema"]), self.schema
        if schema_digest(agreed) == schema_digest(before):
            # the site was started again meanwhile, and fetched the schema with its bundle
            if not self._path(asked["of"], "before.toml").exists():
                return
            before = Schema.load(self._path(asked["of"], "before.toml"))
        if self.settings.agree is None:
            raise PolicyRefusal("the hub sends an agreed schema, and this site was started without --agree", "data")
        if asked["of"] != schema_digest(before):
            raise PolicyRefusal("the hub sends a schema that does not come from this site's", "data")
        check_agreed(before, agreed)
        if self.settings.private:
            agreed.require_bounds()
        columns = tuple(described(agreed))
        if self.policy.columns and self.policy.columns != columns:
            # whoever agreed to have bounds agreed on has agreed to the bounds
            self.policy.check_schema(before)
            dataclasses.replace(self.policy, columns=columns).save(self.state)
        self.audit.add("agreed", columns=described(agreed), asked=False)
        persistence.write_atomic(self.settings.schema, asked["schema"].encode())
        write_log(self.state, f"agreement: {self.settings.schema} has the agreed bounds and levels")


def _read_request(data: bytes) -> dict[str, Any]:
    """Read a request, which may come from anybody; raise ValueError unless it has the right form."""
    try:
        asked = json.loads(data)
        edges = [(float(low), float(high), int(n)) for low, high, n in asked.get("edges", [])]
        found = {**asked, "edges": edges, "levels": bool(asked.get("levels", True))}
        known = asked["stage"] in ("coarse", "fine", "schema") and _is_digest(asked["of"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError("the request of an agreement has an unknown form") from None
    fits = all(
        math.isfinite(low) and math.isfinite(high) and low < high and 0 < n <= _MOST_BINS for low, high, n in edges
    )
    if not known or not fits or (asked["stage"] == "schema" and not isinstance(asked.get("schema"), str)):
        raise ValueError("the request of an agreement has an unknown form")
    return found


def _is_digest(text: Any) -> bool:
    return isinstance(text, str) and re.fullmatch(r"[0-9a-f]{64}", text) is not None

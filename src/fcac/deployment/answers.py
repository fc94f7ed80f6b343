"""What a site answers: each request becomes one reply, whatever happens.

The text of an error could say something about the data. It is written to the site's own log, and the hub gets the code
"unavailable", whatever the reason.
"""

from __future__ import annotations

import contextlib
import traceback
from pathlib import Path

from fcac.deployment import wire
from fcac.deployment.agreement_agent import AgreementAgent
from fcac.deployment.audit_log import AuditLog
from fcac.deployment.policy import Policy, PolicyRefusal
from fcac.deployment.settings import SiteSettings
from fcac.deployment.site_agent import NothingNew, SiteAgent, write_log
from fcac.deployment.wire import Reply, Request
from fcac.exceptions import BudgetExceeded


def answer(settings_file: str | Path, data: bytes) -> bytes:
    """Return the reply of a site, whose settings are in this file, to a request."""
    settings = None
    try:
        settings = SiteSettings.load(settings_file)
        reply = _work(settings, Request.from_bytes(data))
    except NothingNew:
        assert settings is not None
        reply = Reply(wire.NOTHING_NEW, settings.name)
    except (PolicyRefusal, BudgetExceeded) as refusal:
        assert settings is not None
        reply = _refusal(settings, refusal)
    except Exception as error:
        if settings is None:
            # there is nowhere to write a log: the process's own output is the next best place
            traceback.print_exc()
        else:
            write_log(settings.state, f"UNAVAILABLE to the hub: {error}\n{traceback.format_exc()}")
        reply = Reply(wire.UNAVAILABLE, "" if settings is None else settings.name)
    return reply.to_bytes()


def _work(settings: SiteSettings, request: Request) -> Reply:
    if request.kind == wire.AGREE:
        counts = AgreementAgent(settings).answer(request.data)
        return Reply(wire.COUNTS if counts else wire.DONE, settings.name, counts)
    agent = SiteAgent(settings)
    match request.kind:
        case wire.CONTRIBUTE:
            agent.check_schema(request.schema)
            sent = agent.contribute(request.round, request.have)
            return Reply(
                wire.CONTRIBUTION, settings.name, sent, agent.budget_left() if agent.policy.tell_budget else None
            )
        case wire.TAKE_MODEL:
            agent.take_model(request.round, request.data)
            return Reply(wire.DONE, settings.name)
        case wire.SUM:
            from fcac.deployment.pooled_agent import PooledAgent

            agent.check_schema(request.schema)
            return Reply(
                wire.SUMMAND, settings.name, PooledAgent(agent).answer(request.data, request.round - 1, request.have)
            )
    raise ValueError(f"this version of fcac does not know the request {request.kind[:50]!r}")


def _refusal(settings: SiteSettings, refusal: PolicyRefusal | BudgetExceeded) -> Reply:
    """Write down a refusal at the site; the hub learns the reason only if the policy allows it."""
    code = refusal.code if isinstance(refusal, PolicyRefusal) else "budget"
    write_log(settings.state, f"REFUSED: {refusal}")
    with contextlib.suppress(OSError):
        AuditLog(settings.state).add("refused", reason=str(refusal), code=code)
    told = Policy.load(settings.state).tell_reasons
    return Reply(wire.REFUSALS[code] if told else wire.UNAVAILABLE, settings.name)

"""The site's side as a Flower ``ClientApp``: a thin layer over :class:`fcac.deployment.site_agent.SiteAgent`.

Flower sends the text of an exception to the server. Every handler therefore catches all exceptions: the error is
written to the site's own log, and the server gets the code "unavailable", whatever the reason.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fcac.deployment.agreement_agent import AgreementAgent
from fcac.deployment.audit_log import AuditLog
from fcac.deployment.policy import Policy, PolicyRefusal
from fcac.deployment.settings import SiteSettings
from fcac.deployment.site_agent import NothingNew, SiteAgent, write_log
from fcac.exceptions import BudgetExceeded
from fcac.flower import messages
from fcac.flower.messages import Reply

#: Key of the node configuration that names the site's settings file.
SETTINGS_KEY = "fcac-site"

app = ClientApp()


def contribute(message: Message, context: Context) -> Message:
    """Answer a round with the site's contribution."""

    def work(agent: SiteAgent, request: dict[str, Any]) -> Reply:
        name = agent.settings.name
        have = dict(zip(request["sites"], request["have"], strict=True)).get(name, 0)
        data = agent.contribute(int(request["round"]), int(have))
        return Reply(messages.CONTRIBUTION, name, data, agent.budget_left() if agent.policy.tell_budget else None)

    return _answer(message, context, work)


def take_model(message: Message, context: Context) -> Message:
    """Store the global model, for labelling at the site."""

    def work(agent: SiteAgent, request: dict[str, Any]) -> Reply:
        agent.take_model(int(request["round"]), bytes(request["model"]))
        return Reply(messages.DONE, agent.settings.name)

    return _answer(message, context, work)


def answer_sum(message: Message, context: Context) -> Message:
    """Answer a request of secure aggregation."""

    def work(agent: SiteAgent, request: dict[str, Any]) -> Reply:
        from fcac.deployment.pooled_agent import PooledAgent

        answer = PooledAgent(agent).answer(bytes(request["data"]), int(request["closed"]))
        return Reply(messages.SUMMAND, agent.settings.name, answer)

    return _answer(message, context, work)


def agree(message: Message, context: Context) -> Message:
    """Answer a question of an agreement, or take over the agreed schema."""

    def work(agent: AgreementAgent, request: dict[str, Any]) -> Reply:
        answer = agent.answer(bytes(request["data"]))
        return Reply(messages.COUNTS if answer else messages.DONE, agent.settings.name, answer)

    return _answer(message, context, work, AgreementAgent)


def _answer(
    message: Message,
    context: Context,
    work: Callable[[Any, dict[str, Any]], Reply],
    agent: Callable[[SiteSettings], Any] = SiteAgent,
) -> Message:
    settings = None
    try:
        settings = SiteSettings.load(str(context.node_config[SETTINGS_KEY]))
        reply = work(agent(settings), messages.read_request(message.content))
    except NothingNew:
        assert settings is not None
        reply = Reply(messages.NOTHING_NEW, settings.name)
    except (PolicyRefusal, BudgetExceeded) as refusal:
        assert settings is not None
        reply = _refusal(settings, refusal)
    except Exception as error:
        if settings is None:
            # there is nowhere to write a log: the SuperNode's own output is the next best place
            traceback.print_exc()
        else:
            write_log(settings.state, f"UNAVAILABLE to the server: {error}\n{traceback.format_exc()}")
        reply = Reply(messages.UNAVAILABLE, "" if settings is None else settings.name)
    return Message(messages.write_reply(reply), reply_to=message)


def _refusal(settings: SiteSettings, refusal: PolicyRefusal | BudgetExceeded) -> Reply:
    """Write down a refusal at the site; the hub learns the reason only if the policy allows it."""
    code = refusal.code if isinstance(refusal, PolicyRefusal) else "budget"
    write_log(settings.state, f"REFUSED: {refusal}")
    with contextlib.suppress(OSError):
        AuditLog(settings.state).add("refused", reason=str(refusal), code=code)
    told = Policy.load(settings.state).tell_reasons
    return Reply(messages.REFUSALS[code] if told else messages.UNAVAILABLE, settings.name)


app.train("contribute")(contribute)
app.query("take_model")(take_model)
app.train("sum")(answer_sum)
app.train("agree")(agree)

"""An agreement on bounds and levels over a Flower Grid: two questions to the sites, then the schema to all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fcac.deployment.agreement_hub import AgreementHub
from fcac.deployment.hub import Hub
from fcac.deployment.settings import STATE, FederationSettings
from fcac.flower import messages
from fcac.flower.hub_server import DATABASE
from fcac.flower.round_runner import RoundRunner, Timeouts


class AgreementRunner(RoundRunner):
    """Plays an agreement to its end, from where it stopped."""

    def play_agreement(self, agreement: AgreementHub) -> list[str]:
        """Ask the sites until there is a schema, and hand it out; return the sites that have it.

        Raises
        ------
        ValueError
            If too little has arrived, or if the counts do not suffice; what has arrived is kept.
        """
        while agreement.stage != "done":
            self._ask(agreement)
            agreement.close_stage()
        return self._ask(agreement)

    def _ask(self, agreement: AgreementHub) -> list[str]:
        stage, missing, took = agreement.stage, set(agreement.missing()), []
        nodes = {n: site for n, site in self._connected(missing).items() if site is None or site in missing}
        named = sorted(site for site in nodes.values() if site is not None)
        what = "schema" if stage == "done" else stage
        self.hub.note("agreeing", stage=what, sites=named, unnamed=len(nodes) - len(named))

        def take(site: str, reply: messages.Reply) -> None:
            if reply.code == messages.COUNTS and stage != "done":
                try:
                    agreement.take(site, reply.data)
                except ValueError as error:
                    self.hub.note("rejected", site=site, round=0, reason=str(error)[:300])
                    return
                self.hub.note("sent counts", site=site, stage=stage)
                took.append(site)
            elif reply.code == messages.DONE and stage == "done":
                self.hub.note("has the agreed schema", site=site)
                took.append(site)
            else:
                self.hub.note(messages.CODES[reply.code], site=site)

        request = agreement.request()
        self._exchange(messages.AGREE, {node: messages.ask_agreement(request) for node in nodes}, nodes, 0, take)
        return sorted(took)


def run_agreement(
    root: Path, say: Callable[[str], None], *, levels: bool = True, scaling: str = "standard"
) -> tuple[AgreementHub, list[str]]:
    """Play an agreement with the sites of a running hub; return it, and the sites that have the agreed schema.

    Parameters
    ----------
    root : Path
        Directory of the federation.
    say : callable
        Called with every line that describes what happens.
    levels, scaling
        See :class:`fcac.deployment.agreement_hub.AgreementHub`.
    """
    from fcac.flower.adapter import Link, LinkGrid
    from fcac.flower.service import in_words, running_hub

    settings = FederationSettings.load(root)

    def listen(entry: dict[str, Any]) -> None:
        say(in_words(entry))

    hub = Hub(root / STATE, settings, listen)
    agreement = AgreementHub(root, hub, levels, scaling)
    with running_hub(root, settings) as check, LinkGrid(Link(root.resolve() / "server" / DATABASE)) as grid:
        timeouts = Timeouts(settings.timeout, settings.wait, 0.2)
        runner = AgreementRunner(grid, hub, timeouts, reload=lambda: FederationSettings.load(root), check=check)
        return agreement, runner.play_agreement(agreement)

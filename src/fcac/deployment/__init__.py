"""Running a federation: what a hub and a site store, check and answer, and the service that carries their messages.

- :mod:`fcac.deployment.study`: the directory of a federation, and how sites are added, forgotten and revoked in it.
- :mod:`fcac.deployment.hub`: what the hub stores and checks; :mod:`~fcac.deployment.site_agent`: how a site answers.
- :mod:`fcac.deployment.conversation`: the conversation of rounds, over any :class:`fcac.deployment.wire.Wire`.
- :mod:`fcac.deployment.hub_service` and :mod:`fcac.deployment.site_link`: the two processes, HTTPS between them, and
  :mod:`fcac.deployment.outbox`, where messages wait.
"""

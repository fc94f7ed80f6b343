"""A federation that runs: what a hub and a site keep on disk, check, and answer. Nothing here knows Flower.

- :mod:`fcac.deployment.study`: the directory of a federation, and how sites are added, forgotten and revoked in it.
- :mod:`fcac.deployment.settings`, :mod:`fcac.deployment.certificates`: what hub and sites are told; keys.
- :mod:`fcac.deployment.hub`: what the hub checks, keeps and closes, in :mod:`~fcac.deployment.inbox` (contributions to
  the open round, one file each), :mod:`~fcac.deployment.store` (what closed rounds have taken in, in one SQLite file),
  :mod:`~fcac.deployment.stored_log` (the log, read from that file only as far as it is asked for) and
  :mod:`~fcac.deployment.seen` (whether a point was ever contributed as a node).
- :mod:`fcac.deployment.limits`: what one site can do to a round.
- :mod:`fcac.deployment.site_agent`: what a site does when it is asked.
- :mod:`fcac.deployment.shared_codebook`: what sites get to label their rows.
- :mod:`fcac.deployment.legacy`: takes over the state directory of fcac 0.1.0.
"""

"""Running a federation: what a hub and a site store, check and answer. Nothing here depends on Flower.

- :mod:`fcac.deployment.study`: the directory of a federation, and how sites are added, forgotten and revoked in it.
- :mod:`fcac.deployment.settings`, :mod:`fcac.deployment.certificates`: the settings of hub and sites; keys.
- :mod:`fcac.deployment.hub`: the hub. It uses :mod:`~fcac.deployment.inbox` (contributions to the open round, one file
  each), :mod:`~fcac.deployment.store` (the contributions of closed rounds, in one SQLite file),
  :mod:`~fcac.deployment.stored_log` (the log, read from that file on demand) and :mod:`~fcac.deployment.seen` (whether
  a point was ever contributed as a node).
- :mod:`fcac.deployment.limits`: limits on the influence of one site on a round.
- :mod:`fcac.deployment.site_agent`: how a site answers requests.
- :mod:`fcac.deployment.shared_codebook`: the model with which sites label their rows.
"""

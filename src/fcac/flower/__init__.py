"""Across machines: the federation core on Flower, which carries the messages.

The parts, in the order in which a row becomes a cluster:

- :mod:`fcac.tables.new_rows`: which rows of a site's files are new.
- :mod:`fcac.deployment.site_agent`: what a site does when it is asked (no Flower in it).
- :mod:`fcac.flower.client_app`: the same, as a Flower ``ClientApp``.
- :mod:`fcac.flower.messages`: what requests and replies hold.
- :mod:`fcac.flower.round_runner`, :mod:`fcac.flower.server_app`: asking sites and collecting, as a Flower ``ServerApp``.
- :mod:`fcac.deployment.hub`: what the server keeps, checks and closes (no Flower in it).
- :mod:`fcac.deployment.shared_codebook`: what sites get to label their rows.
- :mod:`fcac.flower.in_process`: a Grid inside one process, for tests and for thousands of virtual sites.
- :mod:`fcac.flower.pinned_runtime`, :mod:`fcac.flower.guard`: only our own apps run, only sites are let in from outside.
- :mod:`fcac.deployment.certificates`, :mod:`fcac.deployment.settings`, :mod:`fcac.deployment.directory`, :mod:`fcac.flower.processes`:
  certificates, settings, directories and processes, so that nobody needs to know Flower.
"""

"""Across machines: the federation core on Flower, which carries the messages.

The parts, in the order in which a row becomes a cluster:

- :mod:`fcac.flower.watch`: which rows of a site's files are new.
- :mod:`fcac.flower.agent`: what a site does when it is asked (no Flower in it).
- :mod:`fcac.flower.client_app`: the same, as a Flower ``ClientApp``.
- :mod:`fcac.flower.messages`: what requests and replies hold.
- :mod:`fcac.flower.rounds`, :mod:`fcac.flower.server_app`: asking sites and collecting, as a Flower ``ServerApp``.
- :mod:`fcac.flower.coordinator`: what the server keeps, checks and closes (no Flower in it).
- :mod:`fcac.flower.handout`: what sites get to label their rows.
- :mod:`fcac.flower.inprocess`: a Grid inside one process, for tests and for thousands of virtual sites.
- :mod:`fcac.flower.pinned`, :mod:`fcac.flower.guard`: only our own apps run, only sites are let in from outside.
- :mod:`fcac.flower.keys`, :mod:`fcac.flower.settings`, :mod:`fcac.flower.deploy`, :mod:`fcac.flower.processes`:
  certificates, settings, directories and processes, so that nobody needs to know Flower.
"""

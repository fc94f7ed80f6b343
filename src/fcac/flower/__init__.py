"""Flower carries the messages of a federation. Only what touches ``flwr`` is here; the rest is in `fcac.deployment`.

- :mod:`fcac.flower.client_app`: a site, as a Flower ``ClientApp``.
- :mod:`fcac.flower.server_app`, :mod:`fcac.flower.round_runner`: the hub asking and collecting, as a ``ServerApp``.
- :mod:`fcac.flower.messages`: what requests and replies hold.
- :mod:`fcac.flower.in_process`: a Grid inside one process, for tests and for thousands of virtual sites.
- :mod:`fcac.flower.pinned_runtime`, :mod:`fcac.flower.guard`: only our own apps run; only sites get in from outside.
- :mod:`fcac.flower.processes`, :mod:`fcac.flower.service`: Flower's programs, started, watched and stopped.
"""

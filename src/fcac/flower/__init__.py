"""Transport of a federation's messages by Flower. Only code that uses ``flwr`` is here; see `fcac.deployment`.

- :mod:`fcac.flower.client_app`: a site, as a Flower ``ClientApp``.
- :mod:`fcac.flower.server_app`, :mod:`fcac.flower.round_runner`: the hub's side of a round, as a ``ServerApp``.
- :mod:`fcac.flower.messages`: the contents of requests and replies.
- :mod:`fcac.flower.in_process`: a Grid inside one process, for tests and for thousands of virtual sites.
- :mod:`fcac.flower.pinned_runtime`, :mod:`fcac.flower.guard`: only our own apps run; only sites have access from
  outside.
- :mod:`fcac.flower.processes`, :mod:`fcac.flower.service`: start, watch and stop Flower's programs.
"""

"""Transport of a federation's messages by Flower. Only code that uses ``flwr`` is here; see `fcac.deployment`.

- :mod:`fcac.flower.adapter` (hub) and :mod:`fcac.flower.fleet_client` (site): all that is used of Flower beyond its
  public interface.
- :mod:`fcac.flower.hub_server`, :mod:`fcac.flower.guard`: the hub's process, and what protects it from the network.
- :mod:`fcac.flower.site_node`: a site's process; :mod:`fcac.flower.client_app`: its answers, as a ``ClientApp``.
- :mod:`fcac.flower.server_app`, :mod:`fcac.flower.round_runner`: the hub's side of a round.
- :mod:`fcac.flower.messages`: the contents of requests and replies.
- :mod:`fcac.flower.in_process`: a Grid inside one process, for tests and for thousands of virtual sites.
- :mod:`fcac.flower.processes`, :mod:`fcac.flower.service`: background processes, and runs of rounds.
"""

"""fcac as a Flower app, for those who run Flower: on its public interface only, with its own authentication.

- :mod:`fcac.flower.server_app`: the rounds, as a ``ServerApp``; :mod:`fcac.flower.client_app`: a site, as a
  ``ClientApp``; :mod:`fcac.flower.app_folder` writes the folder that ``flwr run`` takes.

The sites, their policies and ledgers, the hub's checks and the bytes of contributions are those of
:mod:`fcac.deployment`; only the wire differs.
"""

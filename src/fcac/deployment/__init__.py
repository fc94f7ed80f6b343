"""A federation that runs: what a hub and a site keep on disk, check, and answer. Nothing here knows Flower."""

"""Clustering data that may not leave where it is."""

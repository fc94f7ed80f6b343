"""Nearest neighbours of nodes: exact, approximate for very many, and kept up to date when a few nodes change."""

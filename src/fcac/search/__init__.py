"""Nearest neighbours of nodes: exact, with fixed ties."""

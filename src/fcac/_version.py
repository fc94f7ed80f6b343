"""The version, in a module that every layer may import."""

__version__ = "0.2.0"

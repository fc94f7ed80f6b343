"""Bytes and files: one binary format for everything that is stored or sent, and atomic writes."""

from fcac.persistence.format import PROTOCOL, kind_of, locked, pack, read, unpack, write_atomic

__all__ = ["PROTOCOL", "kind_of", "locked", "pack", "read", "unpack", "write_atomic"]

"""Bytes and files: one binary format for everything that is stored or sent, and atomic writes."""

from fcac.persistence.atomic import write_atomic
from fcac.persistence.format import PROTOCOL, kind_of, pack, read, unpack
from fcac.persistence.lock import locked

__all__ = ["PROTOCOL", "kind_of", "locked", "pack", "read", "unpack", "write_atomic"]

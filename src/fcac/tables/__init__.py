"""Reading tables: files of many formats, directories of them and databases, batch by batch.

:func:`open_tables` finds the files, checks that they are consistent and reports problems by file, column and count. It
yields blocks of float64 rows with the name of their site, which is what ``FCAC.play_stream`` learns.
"""

from fcac.exceptions import DataError, RequestError, SchemaError
from fcac.tables.find_tables import FORMATS, find_files, site_from_text
from fcac.tables.read_options import ReadOptions
from fcac.tables.schema import Schema
from fcac.tables.tables_by_site import Batch, Tables, open_tables

__all__ = [
    "FORMATS",
    "Batch",
    "DataError",
    "ReadOptions",
    "RequestError",
    "Schema",
    "SchemaError",
    "Tables",
    "find_files",
    "open_tables",
    "site_from_text",
]

"""Parquet and Arrow files (Feather), read in batches of rows."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from flwr_causal.data.read.origin import Origin


class ArrowRows(NamedTuple):
    """The rows of an open file.

    Parameters
    ----------
    schema : pyarrow.Schema
    batches : callable
        Given a number of rows, returns an iterator over record batches of that many at most.
    """

    schema: Any
    batches: Callable[[int], Iterator[Any]]


@contextmanager
def arrow_rows(origin: Origin) -> Iterator[ArrowRows]:
    """Open a Parquet or an Arrow file."""
    if origin.format == "parquet":
        from pyarrow.parquet import ParquetFile

        # Without a buffer of some bytes, all of a row group would be read at once.
        with ParquetFile(origin.rows, buffer_size=2**16, pre_buffer=False) as file:
            yield ArrowRows(file.schema_arrow, lambda size: file.iter_batches(batch_size=size))
        return
    import pyarrow as pa

    with pa.memory_map(str(origin.rows)) as mapped:
        if _is_arrow_file(origin.rows):
            reader = pa.ipc.open_file(mapped)
            found = (reader.get_batch(k) for k in range(reader.num_record_batches))
        else:
            found = reader = pa.ipc.open_stream(mapped)
        yield ArrowRows(reader.schema, lambda size: _cut(found, size))


def _is_arrow_file(path: Path) -> bool:
    """Return whether a file can be read from any place; a stream is read from its beginning."""
    with path.open("rb") as file:
        return file.read(6) == b"ARROW1"


def _cut(batches: Iterator[Any], size: int) -> Iterator[Any]:
    for batch in batches:
        for start in range(0, len(batch), size):
            yield batch.slice(start, size)


def arrow_frames(
    origin: Origin, rows_of_piece: Callable[[int], int] | None
) -> Iterator[pd.DataFrame]:
    """Read a Parquet or an Arrow file in pieces of the same number of rows; see `frames_of`."""
    if rows_of_piece is None and origin.format == "parquet":
        yield pd.read_parquet(origin.rows)
        return
    import pyarrow as pa

    with arrow_rows(origin) as rows:
        if rows_of_piece is None:
            yield pa.Table.from_batches(rows.batches(2**16), rows.schema).to_pandas()
            return
        names = [name for name in rows.schema.names if not name.startswith("__index_level_")]
        size = rows_of_piece(len(names))
        held: list[Any] = []
        for batch in rows.batches(size):
            held.append(batch)
            while sum(map(len, held)) >= size:
                table = pa.Table.from_batches(held)
                yield table.slice(0, size).to_pandas()
                held = table.slice(size).to_batches()
        if held:
            yield pa.Table.from_batches(held).to_pandas()

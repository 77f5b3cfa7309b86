"""Rows of a query to a database, by SQLAlchemy.

No message holds the URL, a part of it, or what the database says: its words may hold secrets, or
values of rows. The class of its error says enough to look further with the database's own client.
"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from flwr_causal.data.read.reading import of_cells
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flwr_causal.data.read.origin import Origin

#: The databases that are files, by their names in a URL.
_OF_FILES = ("sqlite", "duckdb")


def database_frames(
    origin: Origin, rows_of_piece: Callable[[int], int] | None
) -> Iterator[pd.DataFrame]:
    """Read the rows of a query in pieces; see `frames_of`. Nothing is written to the database.

    Raises
    ------
    DataError
        If the environment has no URL, the driver is not installed, the database cannot be reached,
        or it refuses the query.
    """
    import sqlalchemy

    engine = _engine(sqlalchemy, origin)
    failed = ""
    try:
        with _connected(engine, origin) as connection:
            # With sql text, "::" and ":name" of a query would be parameters.
            query = sqlalchemy.text(origin.query.strip().rstrip(";").replace(":", r"\:"))
            streamed = connection.execution_options(stream_results=True)
            with closing(streamed.execute(query)) as rows:
                yield from _blocks(rows, rows_of_piece)
    except sqlalchemy.exc.SQLAlchemyError as error:
        failed = _kind(error)
    finally:
        # A transaction that was not ended is rolled back.
        engine.dispose()
    if failed:
        raise DataError(
            f"{origin.path}: the database refused the query ({failed}): try the query in the "
            "database's own client, with the same user"
        )


def _blocks(rows: Any, rows_of_piece: Callable[[int], int] | None) -> Iterator[pd.DataFrame]:
    names = list(rows.keys())
    if rows_of_piece is None:
        yield _frame(rows.fetchall(), names)
        return
    size = rows_of_piece(len(names))
    block, first = rows.fetchmany(size), True
    while block or first:
        yield _frame(block, names)
        block, first = rows.fetchmany(size), False


def _engine(sqlalchemy: Any, origin: Origin) -> Any:
    url = os.environ.get(origin.url_variable, "").strip()
    if not url:
        raise DataError(
            f"{origin.path}: the environment variable {origin.url_variable} is not set: write the "
            "SQLAlchemy URL of the database into it, where the node is started"
        )
    failed, driver = "", ""
    try:
        how = _as_reader(sqlalchemy.make_url(url), origin)
        return sqlalchemy.create_engine(url, poolclass=sqlalchemy.pool.NullPool, **how)
    except DataError:
        raise
    except ModuleNotFoundError as error:
        driver = error.name or "the database's driver"
    except Exception as error:  # also ValueError, of a port that is no number
        failed = _kind(error)
    if driver:
        raise DataError(
            f"{origin.path} needs {driver}: pip install {driver} (for PostgreSQL: pip install "
            '"flwr-causal[sql]", and a URL that begins with postgresql+psycopg://)'
        )
    raise DataError(
        f"{origin.path}: the environment variable {origin.url_variable} holds no SQLAlchemy URL "
        f"({failed}): it begins as postgresql+psycopg:// or sqlite:/// does, and signs such as @ "
        "and / in a password are written %40 and %2F"
    )


def _as_reader(url: Any, origin: Origin) -> dict[str, Any]:
    """Return the arguments with which a database that is a file is opened to be read.

    SQLite and DuckDB make an empty database of a file that is not there.
    """
    kind = url.get_backend_name()
    file = (url.database or "").partition("?")[0]
    if kind not in _OF_FILES or file in ("", ":memory:"):
        return {}
    if not Path(file.removeprefix("file:")).is_file():
        raise DataError(
            f"{origin.path}: the file of the database that {origin.url_variable} names does not "
            "exist: check the path in the URL (an absolute one has four strokes: "
            "sqlite:////data/clinic.db)"
        )
    return {"connect_args": {"read_only": True}} if kind == "duckdb" else {}


def _connected(engine: Any, origin: Origin) -> Any:
    failed = ""
    try:
        return engine.connect()
    except Exception as error:  # drivers raise errors of their own, too
        failed = _kind(error)
    raise DataError(
        f"{origin.path}: the database of {origin.url_variable} cannot be reached ({failed}): check "
        "that it runs, and host, port, user, password and name in the URL"
    )


def _frame(rows: list[Any], names: list[str]) -> pd.DataFrame:
    cells = [*zip(*rows, strict=True)] or [()] * len(names)
    frame = pd.concat([of_cells(column) for column in cells], axis=1)
    frame.columns = pd.Index(names, dtype=object)
    return frame


def _kind(error: BaseException) -> str:
    """Return the class of the driver's error, such as "UndefinedColumn"."""
    return type(getattr(error, "orig", None) or error).__name__

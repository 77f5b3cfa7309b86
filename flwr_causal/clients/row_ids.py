"""The base of clients whose rows may be matched with those of other parties, by ids."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flwr_causal.clients.base import Asked, CausalClient, answers
from flwr_causal.data.check.row_ids import (
    checked_ids,
    hashed_ids,
    hashes_of_rows,
    kind_of_ids,
    name_of_ids,
    plain_ids,
    problem_of_ids,
)
from flwr_causal.data.read.pieces import whole
from flwr_causal.errors import ConfigError
from flwr_causal.protocol.row_ids import ALIGN

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from flwr_causal.core.arrays import Arrays
    from flwr_causal.data.check.report import TableReport


class RowIdClient(CausalClient):
    """Base of the clients of methods that join rows by ids, see the option ``row_id``.

    The node config may hold ``row-secret-file`` (a file with the same text at all parties, unknown
    to the server; needed to align rows) or ``row-secret`` (the text itself).
    """

    def with_ids(self, report: TableReport) -> TableReport:
        """Return a report that says whether the table has ids, and whether rows can be matched.

        Ids that repeat matter where columns differ only, which a party alone does not know.
        """
        ids = self._id_column()
        if ids is None:
            return report
        return replace(
            report, has_ids=True, ids_problem=problem_of_ids(ids), ids_kind=kind_of_ids(ids)
        )

    @property
    def held_names(self) -> tuple[str, ...]:
        """The agreed columns that the party holds."""
        columns = set(map(str, self.table().columns))
        return tuple(name for name in self.setup.names if name in columns)

    @answers(ALIGN)
    def align(self, asked: Asked) -> Arrays:
        """Return keyed hashes of the ids, with lags of the ids of all steps; none without a secret.

        A hash of the latest step's id alone would match rows whose lags are other steps, where a
        party lacks a step.
        """
        hashes = self.row_hashes()
        return {} if hashes is None else {"hashes": hashes}

    def row_hashes(self) -> NDArray[np.uint8] | None:
        """Return the keyed hashes of the rows, shape (n_k, 16); None without a secret."""
        secret = self.secret()
        if secret is None:
            return None
        steps = self.kept_rows(self.setup.policy)
        return hashes_of_rows(hashed_ids(self._ids(), secret)[steps], secret)

    def ids(self) -> pd.Series:
        """Return the ids of the rows that are kept; with lags of their latest steps."""
        return self._ids().iloc[self.kept_rows(self.setup.policy)[:, 0]]

    def secret(self) -> bytes | None:
        """Return the secret under which ids are hashed."""
        node = self.node
        if node.row_secret_file is not None:
            return _secret_in(node.row_secret_file)
        if node.row_secret:
            return node.row_secret.encode()
        # A simulation needs no secret, because all tables are on one machine. The random numbers of
        # rows follow from the secret; in a simulation the secret is the seed.
        return str(self.setup.options.seed).encode() if node.is_simulated else None

    def _ids(self) -> pd.Series:
        ids = self._id_column()
        if ids is None:
            raise ConfigError("rows cannot be aligned: the table has no column of ids")
        return checked_ids(ids)

    def _id_column(self) -> pd.Series | None:
        table = self.source.read()
        name = name_of_ids(table.columns, self._row_id)
        # Without ids a large file stays where it is.
        return None if name is None else plain_ids(whole(table)[name])


def _secret_in(file: Path) -> bytes:
    """Return the secret that a file holds, without blanks and ends of lines around it."""
    try:
        secret = file.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"row-secret-file cannot be read: {error.strerror or error}") from error
    if not secret:
        raise ConfigError("row-secret-file holds no text: write the secret into it")
    return secret

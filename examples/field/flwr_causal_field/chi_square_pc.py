"""The PC algorithm of FedC2SL: chi-square tests from summed counts.

FedC2SL's parties encode the cells of a table by a random projection before they are summed. Here
the sums are exact; with ``secure_aggregation=True`` the server learns them and no party's counts.

References
----------
Wang, Z., Ma, P. & Wang, S. (2023). Towards practical federated causal structure learning.
ECML PKDD.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.stats import chi2

from flwr_causal import CausalGraph
from flwr_causal.app.methods import Method
from flwr_causal.clients import CausalClient, answers
from flwr_causal.core.options import bounded
from flwr_causal.data.kinds import DataKind
from flwr_causal.protocol import Contract, Disclosure, Exchange, Sent
from flwr_causal.strategies import Ask, CausalOptions, CausalStrategy, Note, Result
from flwr_causal_field.pc import Skeleton


def shapes(sets: Any, states: Any) -> Any:
    """Return the shape of the table of each set of columns."""
    return [tuple(len(states[j]) for j in columns) for columns in np.asarray(sets).tolist()]


TABLES = Exchange(
    "tables",
    "counts of rows by the states of two columns and of those that are held fixed",
    sends=(Sent("sets", "the columns of each table", ("q", "w"), values="index", below="d"),),
    returns=(Disclosure("counts", "all tables, one after the other", ("cells",), "count", "sum"),),
    derived=lambda sent, setup: {
        "cells": int(sum(np.prod(shape) for shape in shapes(sent["sets"], setup.states)))
    },
    same_parties=True,  # all tests are of the same rows
)
CONTRACT = Contract("chi-square-pc", (TABLES,), reports=("states",))


class ChiSquarePCClient(CausalClient):
    """Counts the party's rows."""

    contract = CONTRACT

    @answers(TABLES)
    def tables(self, asked: Any) -> Any:
        codes, sets = self.codes(), asked["sets"].astype(np.int64)
        counts = []
        for columns, shape in zip(sets, shapes(sets, self.setup.states), strict=True):
            cells = np.ravel_multi_index(tuple(codes[:, columns].T), shape)
            counts.append(np.bincount(cells, minlength=int(np.prod(shape))))
        return {"counts": np.concatenate(counts)}


def p_value(table: Any) -> float:
    """Test the first two axes of a table, within the states of the others."""
    table = table.reshape(*table.shape[:2], -1).astype(float)
    table = table[..., table.any((0, 1))]
    rows, columns = table.sum(1, keepdims=True), table.sum(0, keepdims=True)
    expected = rows * columns / table.sum((0, 1))
    errors = (table - expected) ** 2 / np.where(expected > 0, expected, 1.0)
    # States that do not occur give no degrees of freedom.
    freedom = (((rows > 0).sum((0, 1)) - 1) * ((columns > 0).sum((0, 1)) - 1)).sum()
    return float(chi2.sf(errors.sum(), freedom)) if freedom else 1.0


@dataclass(frozen=True, kw_only=True)
class ChiSquarePCOptions(CausalOptions):
    """The level of the tests; columns of text and of one state are kept."""

    max_rounds: int = 100
    text_columns: Literal["fail", "drop", "keep"] = "keep"  # type: ignore[assignment]
    constant_columns: Literal["fail", "drop", "keep"] = "keep"  # type: ignore[assignment]
    alpha: float = bounded(0.01, above=0, below=1)


class ChiSquarePC(CausalStrategy):
    """The PC algorithm, an exchange for each number of columns that are held fixed."""

    contract = CONTRACT
    options_type = ChiSquarePCOptions
    options: ChiSquarePCOptions
    data = DataKind.CATEGORIES  # type: ignore[assignment]
    pools_rows = True

    def train(self, agreement: Any, replicate: int = 0) -> Any:
        names, states = agreement.names, agreement.states
        skeleton = Skeleton(len(names))

        def so_far() -> Result:
            return Result(CausalGraph(names, skeleton.joined * 1.0, kind="cpdag"))

        for size in range(len(names) - 1):
            tests = skeleton.tests(size)
            if not tests:
                break
            replies = yield Ask(TABLES, {"sets": np.array(tests)}, so_far=so_far)
            sizes = [np.prod(shape) for shape in shapes(tests, states)]
            parts = np.split(replies["counts"], np.cumsum(sizes)[:-1])
            tables = map(np.reshape, parts, shapes(tests, states))
            skeleton.learn(tests, list(map(p_value, tables)), self.options.alpha)
            yield Note({"tests": len(tests), "edges": int(skeleton.joined.sum()) // 2})
        graph = CausalGraph(names, skeleton.directed() * 1.0, kind="cpdag")
        return Result(graph, reason="no further tests")


METHOD = Method(strategy=ChiSquarePC, client=ChiSquarePCClient)

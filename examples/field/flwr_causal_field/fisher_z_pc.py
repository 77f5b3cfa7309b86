"""The PC algorithm on numbers: all tests follow from one exchange of second moments."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import norm

from flwr_causal import CausalGraph
from flwr_causal.app.methods import Method
from flwr_causal.clients import CausalClient, answers
from flwr_causal.core.linear.moments import mean_and_second
from flwr_causal.core.options import bounded
from flwr_causal.protocol import Contract, Disclosure, Exchange
from flwr_causal.strategies import Ask, CausalOptions, CausalStrategy, Note, Result
from flwr_causal_field.pc import Skeleton

SUMS = Exchange(
    "sums",
    "sums over rows, from which all partial correlations follow",
    returns=(
        Disclosure(
            "products",
            "X_k^T X_k of the rows [1, x], where x is measured from the agreed means",
            ("p", "p"),
            "second-moments",
            "sum",
        ),
    ),
    same_parties=True,
)
CONTRACT = Contract("fisher-z-pc", (SUMS,), lambda setup: {"p": 1 + len(setup.names)})


class FisherZPCClient(CausalClient):
    """Adds up the party's rows."""

    contract = CONTRACT

    @answers(SUMS)
    def sums(self, asked: Any) -> Any:
        rows = np.insert(self.rows() - self.setup.mean, 0, 1.0, axis=1)
        return {"products": rows.T @ rows}


def p_value(correlations: Any, num_rows: float, test: Any) -> float:
    """Test the partial correlation of the first two columns given the others (Fisher's z)."""
    precision = np.linalg.pinv(correlations[np.ix_(test, test)], hermitian=True)
    partial = -precision[0, 1] / np.sqrt(precision[0, 0] * precision[1, 1])
    freedom = num_rows - len(test) - 1  # n - |S| - 3
    z = np.sqrt(max(freedom, 0)) * np.arctanh(np.clip(partial, -1 + 1e-15, 1 - 1e-15))
    return float(2 * norm.sf(abs(z)))


@dataclass(frozen=True, kw_only=True)
class FisherZPCOptions(CausalOptions):
    """The level of the tests."""

    alpha: float = bounded(0.01, above=0, below=1)


class FisherZPC(CausalStrategy):
    """The PC algorithm, in one exchange."""

    contract = CONTRACT
    options_type = FisherZPCOptions
    options: FisherZPCOptions
    pools_rows = True

    def train(self, agreement: Any, replicate: int = 0) -> Any:
        replies = yield Ask(SUMS)
        products = replies["products"]
        _, covariance = mean_and_second(products)
        scales = np.sqrt(np.diag(covariance))
        correlations = covariance / np.outer(scales, scales)
        skeleton, count = Skeleton(len(scales)), 0
        for size in range(len(scales) - 1):
            tests = skeleton.tests(size)
            if not tests:
                break
            found = [p_value(correlations, products[0, 0], test) for test in tests]
            skeleton.learn(tests, found, self.options.alpha)
            count += len(tests)
        yield Note({"tests": count, "edges": int(skeleton.joined.sum()) // 2})
        graph = CausalGraph(agreement.names, skeleton.directed() * 1.0, kind="cpdag")
        return Result(graph, reason="no further tests")


METHOD = Method(strategy=FisherZPC, client=FisherZPCClient)

"""FedCDH: PC with kernel tests where parties differ, from one exchange of random features.

The parties' index is one more variable, a cause of all whose mechanism changes between parties. The
tests are those of covariances of random Fourier features, which sum over parties. Where both ends
of an edge change, the direction is that in which the changes of P(cause) and of P(effect | cause)
are less dependent.

The features of several columns that are held fixed stand side by side, and the null distribution of
the test is a gamma distribution of the paper's mean and variance. P(effect | cause) is a
conditional embedding: with the joint embedding of the authors' program, which contains P(cause),
the other direction is preferred in four of five pairs of changing linear mechanisms.

References
----------
Li, L., Ng, I., Luo, G., Huang, B., Chen, G., Liu, T., Gu, B. & Zhang, K. (2024). Federated causal
discovery from heterogeneous data. ICLR.
Huang, B. et al. (2020). Causal discovery from heterogeneous/nonstationary data. JMLR 21. (CD-NOD.)
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import gamma

from flwr_causal import CausalGraph
from flwr_causal.app.methods import Method
from flwr_causal.clients import CausalClient, answers
from flwr_causal.core.graphs.equivalence import meek
from flwr_causal.core.options import bounded
from flwr_causal.protocol import Contract, Disclosure, Exchange, Sent
from flwr_causal.strategies import Ask, CausalOptions, CausalStrategy, Note, Result
from flwr_causal_field.pc import Skeleton

FEATURES = Exchange(
    "features",
    "second moments of random features, from which all tests follow",
    sends=(
        Sent("frequencies", "of the features, in units of a standard deviation", ("h",)),
        Sent("phases", "of the features", ("h",)),
    ),
    returns=(
        Disclosure(
            "products",
            "X_k^T X_k of the rows [1, sqrt(2) cos(w x + b) of each column x]",
            ("p", "p"),
            "second-moments",
        ),
    ),
    derived=lambda sent, setup: {"p": 1 + len(setup.names) * len(sent["frequencies"])},
    same_parties=True,
)
CONTRACT = Contract("fedcdh", (FEATURES,))
#: Of covariances of features that are held fixed, and of conditional embeddings.
TEST_RIDGE, EMBEDDING_RIDGE = 1e-3, 1e-2


class FedCDHClient(CausalClient):
    """Adds up products of random features of the party's rows."""

    contract = CONTRACT

    @answers(FEATURES)
    def features(self, asked: Any) -> Any:
        rows = (self.rows() - self.setup.mean) / np.sqrt(self.setup.variance)
        angles = rows[:, :, None] * asked["frequencies"] + asked["phases"]
        features = np.sqrt(2.0) * np.cos(angles).reshape(len(rows), -1)
        features = np.insert(features, 0, 1.0, axis=1)
        return {"products": features.T @ features}


def covariance_with_index(products: Any) -> Any:
    """Return the covariances of all features, and at the end of the parties' indicators."""
    each = np.array(products)  # (K, p, p)
    n, total = each[:, 0, 0].sum(), each.sum(axis=0)
    # Of the rows [features, indicators], about zero: an indicator selects its party's rows.
    cross, shares = each[:, 0, 1:].T, np.diag(each[:, 0, 0])
    second = np.block([[total[1:, 1:], cross], [cross.T, shares]]) / n
    mean = np.concatenate([total[0, 1:], each[:, 0, 0]]) / n
    return second - np.outer(mean, mean)


def p_value(covariance: Any, n: float, x: Any, y: Any, z: Any) -> float:
    """Test features x and y given features z (section 4.2)."""
    xy = np.concatenate([x, y])
    rest = covariance[np.ix_(xy, xy)]
    if len(z):
        fixed = covariance[np.ix_(z, z)] + TEST_RIDGE * np.eye(len(z))
        rest = rest - covariance[np.ix_(xy, z)] @ np.linalg.solve(fixed, covariance[np.ix_(z, xy)])
    of_x, of_y, cross = (
        rest[: len(x), : len(x)],
        rest[len(x) :, len(x) :],
        rest[: len(x), len(x) :],
    )
    mean = np.trace(of_x) * np.trace(of_y)
    variance = 2.0 * (of_x**2).sum() * (of_y**2).sum()
    statistic = n * (cross**2).sum()
    return float(gamma.sf(statistic, mean**2 / variance, scale=variance / mean))


def dependence_of_changes(products: Any, x: Any, y: Any) -> float:
    """Return how much the changes of P(x) and of P(y | x) between parties depend on each other."""
    causes, effects = [], []
    for own in products:
        own = own / own[0, 0]
        given = np.concatenate([[0], 1 + x])
        ridge = EMBEDDING_RIDGE * np.eye(len(given))
        conditional = np.linalg.solve(own[np.ix_(given, given)] + ridge, own[np.ix_(given, 1 + y)])
        causes.append(own[0, 1 + x])
        effects.append(conditional.ravel())
    cause, effect = (np.array(one) - np.mean(one, axis=0) for one in (causes, effects))
    size = np.trace(cause @ cause.T) * np.trace(effect @ effect.T)
    return float(((cause.T @ effect) ** 2).sum() / size)


@dataclass(frozen=True, kw_only=True)
class FedCDHOptions(CausalOptions):
    """The level of the tests, and the number of features of each column."""

    alpha: float = bounded(0.05, above=0, below=1)
    features: int = bounded(5, least=1)


class FedCDH(CausalStrategy):
    """PC on the columns and the parties' index; directions by independent changes."""

    contract = CONTRACT
    options_type = FedCDHOptions
    options: FedCDHOptions

    def train(self, agreement: Any, replicate: int = 0) -> Any:
        d, h = len(agreement.names), self.options.features
        rng = np.random.default_rng(self.options.seed)
        sent = {"frequencies": rng.normal(size=h), "phases": rng.uniform(0, 2 * np.pi, h)}
        replies = yield Ask(FEATURES, sent)
        products = replies.list("products")
        covariance, n = covariance_with_index(products), sum(own[0, 0] for own in products)
        # The features of each column; the indicators are those of the last variable.
        columns = np.split(np.arange(len(covariance)), h * np.arange(1, d + 1))

        skeleton = Skeleton(d + (len(products) > 1))
        for size in range(d):
            tests = skeleton.tests(size)
            if not tests:
                break
            found = []
            for i, j, *fixed in tests:
                z = np.concatenate([columns[k] for k in fixed] or [[]]).astype(int)
                found.append(p_value(covariance, n, columns[i], columns[j], z))
            skeleton.learn(tests, found, self.options.alpha)
        skeleton.joined[:, d:] = False  # the parties' index has no causes
        marks = skeleton.directed()
        changing = marks[d:, :d].any(axis=0)
        yield Note(
            {"edges": int((marks | marks.T)[:d, :d].sum()) // 2, "changing": int(changing.sum())}
        )

        both = np.outer(changing, changing)
        for i, j in np.argwhere(np.triu(both & marks[:d, :d] & marks[:d, :d].T)).tolist():
            if marks[i, j] and marks[j, i]:  # still
                forward = dependence_of_changes(products, columns[i], columns[j])
                backward = dependence_of_changes(products, columns[j], columns[i])
                marks[(j, i) if forward < backward else (i, j)] = False
                marks = meek(marks)
        names = [agreement.names[k] for k in np.flatnonzero(changing)]
        reason = f"mechanisms that change between parties: {', '.join(names) or 'none'}"
        return Result(
            CausalGraph(agreement.names, marks[:d, :d] * 1.0, kind="cpdag"), reason=reason
        )


METHOD = Method(strategy=FedCDH, client=FedCDHClient)

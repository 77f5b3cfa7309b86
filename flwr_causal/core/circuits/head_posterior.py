"""A logistic head: the class of a row from weighted log densities of leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from scipy.special import logsumexp

from flwr_causal.core.circuits.decision_threshold import chosen_classes
from flwr_causal.core.circuits.domain import Domain
from flwr_causal.core.circuits.storage import KINDS, read_pair, write_pair
from flwr_causal.errors import CausalError, ConfigError, DataError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.circuits.nodes import Leaf


FORMAT = "flwr-causal head 1"


class Head(NamedTuple):
    """Weights of the leaves (m,) and biases of the classes (C,), -inf of a class without rows.

    A leaf j with weight w_j counts as if it were there w_j times:
    ``log P(c | x) = b_c + sum_j w_j f_cj(x) - log of the normaliser``, where ``f_cj`` is its log
    density under class c.
    """

    weights: FloatArray
    biases: FloatArray

    def log_posterior(self, features: FloatArray) -> FloatArray:
        """Log probability of each class (n, C) from log densities (n, C, m)."""
        scores = features @ self.weights + self.biases
        return np.asarray(scores - logsumexp(scores, axis=1, keepdims=True))


class Posterior(Protocol):
    """Gives the class of a row: a `Circuit`, or a `HeadPosterior`."""

    def predict_proba(self, data: Any, target: str) -> FloatArray:
        """Probability of each class given the rest of each row, shape (n, classes)."""
        ...

    def predict(self, data: Any, target: str, threshold: float | None = None) -> NDArray[Any]:
        """Return the class of each row as labels were given, shape (n,)."""
        ...

    def save(self, directory: str | Path) -> None:
        """Write what is needed to load it."""
        ...


@dataclass(frozen=True, eq=False)
class HeadPosterior:
    """Posterior of the class by a logistic head.

    A missing value is integrated out of each leaf; a leaf of whose columns none is known has the
    log density 0. Data and labels are as of `Circuit`.

    Parameters
    ----------
    domain : Domain
    target : str
        Name of the class.
    leaves : tuple of tuples of Leaf
        For each class the same m scopes; the features are their log densities.
    head : Head
    """

    domain: Domain
    target: str
    leaves: tuple[tuple[Leaf, ...], ...]
    head: Head

    def predict_proba(self, data: Any, target: str | None = None) -> FloatArray:
        """Probability of each class, shape (n, classes); the target in the data is not read.

        Raises
        ------
        ConfigError
            For another target than the head's.
        """
        if target not in (None, self.target):
            raise ConfigError(f"the head tells {self.target!r}, not {target!r}: ask the circuit")
        names = [name for name in self.domain.names if name != self.target]
        return np.exp(self.head.log_posterior(self.features(self.domain.encode(data, names))))

    def predict(
        self, data: Any, target: str | None = None, threshold: float | None = None
    ) -> NDArray[Any]:
        """Return the most probable class of each row, as labels were given, shape (n,).

        Parameters
        ----------
        data, target
            As in `predict_proba`.
        threshold : float, optional
            Of two classes the second is chosen from this probability on. Default: the more
            probable one.

        Raises
        ------
        ConfigError
            For a threshold and another number of classes than two.
        """
        probabilities = self.predict_proba(data, target)
        chosen = chosen_classes(probabilities, threshold, self.target)
        column = self.domain.index(self.target)
        return self.domain.decoded_column(column, chosen.astype(np.float64))

    def features(self, values: FloatArray) -> FloatArray:
        """Log densities (n, C, m) of values (n, number of variables), NaN integrated out."""
        flat = [leaf for group in self.leaves for leaf in group]
        densities = np.empty((len(flat), len(values)))
        for kind in {type(leaf) for leaf in flat}:
            own = [i for i, leaf in enumerate(flat) if type(leaf) is kind]
            densities[own] = kind.batch([flat[i] for i in own]).log_density(values)
        return densities.reshape(len(self.leaves), -1, len(values)).transpose(2, 0, 1)

    def save(self, directory: str | Path) -> None:
        """Write ``head.json`` and ``head.npz`` into a directory; numbers survive exactly."""
        flat = [leaf for group in self.leaves for leaf in group]
        plain = {
            "format": FORMAT,
            "domain": self.domain.to_plain(),
            "target": self.target,
            "leaves": [{"kind": leaf.kind, "scope": list(leaf.scope)} for leaf in flat],
        }
        arrays: dict[str, Any] = {
            f"{i}.{name}": array
            for i, leaf in enumerate(flat)
            for name, array in leaf.arrays().items()
        }
        arrays |= self.head._asdict()
        write_pair(directory, "head", plain, arrays)

    @classmethod
    def load(cls, directory: str | Path) -> HeadPosterior:
        """Read what :meth:`save` wrote; a DataError if it is something else."""
        try:
            plain, arrays = read_pair(directory, "head", FORMAT)
            head = Head(arrays.pop("weights"), arrays.pop("biases"))
            own: list[dict[str, NDArray[Any]]] = [{} for _ in plain["leaves"]]
            for key, array in arrays.items():
                number, _, name = key.partition(".")
                own[int(number)][name] = array
            flat = [
                KINDS[one["kind"]].from_arrays(one["scope"], parameters)
                for one, parameters in zip(plain["leaves"], own, strict=True)
            ]
            domain = Domain.from_plain(plain["domain"])
        except (ValueError, KeyError, IndexError, TypeError, CausalError) as error:
            raise DataError(
                f"{directory} does not hold a head ({error!r}): save it again"
            ) from error
        m = len(head.weights)
        leaves = tuple(tuple(flat[start : start + m]) for start in range(0, len(flat), m))
        return cls(domain, plain["target"], leaves, head)

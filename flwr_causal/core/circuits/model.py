"""The result of a training: a density, and optionally a posterior of the class and a threshold.

The class of a row follows from the density by Bayes' rule, or from a logistic head on log densities
of leaves that is trained to predict it (`HeadPosterior`). If one of two classes is rare, it is the
more probable class of hardly any row. A threshold of its probability is then chosen by macro F1
(`best_threshold`): parties count rows by class and log odds, and the sum of the counts gives F1 at
every edge between the bins.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np
from scipy.special import logsumexp

from flwr_causal.core.answers import Answers
from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.composed.federated_circuit import FederatedCircuit
from flwr_causal.core.circuits.distribution import chosen_classes
from flwr_causal.core.circuits.domain import Domain, without_unseen
from flwr_causal.core.circuits.presence import joined_tables
from flwr_causal.core.circuits.storage import KINDS, read_pair, write_pair
from flwr_causal.core.files import write
from flwr_causal.core.saved import DAMAGE, writing
from flwr_causal.core.threads import SingleThreaded
from flwr_causal.core.words import with_forms
from flwr_causal.errors import CausalError, ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd
    from numpy.typing import NDArray

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.circuits.distribution import Distribution
    from flwr_causal.core.circuits.nodes import Leaf

MODEL_FORMAT = "flwr-causal circuit model 1"
HEAD_FORMAT = "flwr-causal head 1"


@dataclass(frozen=True, eq=False)
class CircuitModel(Answers):
    """A joint distribution and, optionally, a class to predict.

    Data are frames whose columns are found by name; mappings of names to columns, or to the values
    of one row; or arrays with all columns in the domain's order. Missing columns and values are
    summed or integrated out, and so are, with a warning, states that no party had in training. If
    no single frame holds all columns, a sequence of frames is joined by a column of ids.

    Parameters
    ----------
    density : Distribution
        A `Circuit` or a `FederatedCircuit`, for all queries but predictions of the class.
    target : str, optional
        The class. Default: none.
    posterior : Posterior, optional
        Predicts the class. Default: the density does.
    threshold : float, optional
        Probability from which on the second of two classes is predicted. Default: the more probable
        class is predicted.
    row_id : str, default "row_id"
        The column of ids in sequences of frames.

    Examples
    --------
    >>> import pandas as pd
    >>> from flwr_causal.solvers import learn_spn
    >>> table = pd.DataFrame({"rain": ["no", "yes"] * 20, "wet": ["no", "yes"] * 20})
    >>> from flwr_causal.core.circuits.model import CircuitModel
    >>> CircuitModel(learn_spn(table)).log_likelihood(table).shape
    (40,)
    """

    KIND: ClassVar[str] = "circuit"

    density: Distribution
    target: str | None = None
    posterior: Posterior | None = None
    threshold: float | None = None
    row_id: str = "row_id"

    def __repr__(self) -> str:
        return f"<CircuitModel of {self.density!r}, target {self.target!r}>"

    @property
    def domain(self) -> Domain:
        """The variables."""
        return self.density.domain

    @property
    def names(self) -> tuple[str, ...]:
        """The variables' names."""
        return self.density.names

    def log_likelihood(self, data: Any) -> FloatArray:
        """Log density of each row in nats, shape (n,)."""
        return self.density.log_likelihood(self._frame(data))

    def anomaly_score(self, data: Any) -> FloatArray:
        """Minus the log-likelihood of each row: high where a row is unlike the others."""
        return self.density.anomaly_score(self._frame(data))

    def classes(self, target: str | None = None) -> NDArray[Any]:
        """Return the labels in the order of :meth:`predict_proba`."""
        return self.density.classes(self._target_or_default(target))

    def predict_proba(self, data: Any, target: str | None = None) -> FloatArray:
        """Probability of each class given the rest of each row, shape (n, classes).

        Raises
        ------
        ConfigError
            If the model has no target and none is given, or the target is a number.
        DataError
            If what is known of a row is impossible.
        """
        asked = self._target_or_default(target)
        trained = self.posterior if asked == self.target else None
        posterior = self.density if trained is None else trained
        return posterior.predict_proba(self._frame(data, asked), asked)

    def predict(
        self, data: Any, target: str | None = None, threshold: float | None = None
    ) -> NDArray[Any]:
        """Return the predicted class of each row as its label, or the mean of a number, (n,).

        Parameters
        ----------
        data : DataFrame, mapping, array or sequence of DataFrame
        target : str, optional
            Default: the model's target.
        threshold : float, optional
            Default: the model's threshold, for the model's target.

        Raises
        ------
        ConfigError
            If the model has no target and none is given; or for a threshold if there are not two
            classes.
        """
        asked = self._target_or_default(target)
        if self.density.is_number(asked):
            return self.density.predict(self._frame(data, asked), asked, threshold)
        cut = self.threshold if threshold is None and asked == self.target else threshold
        chosen = chosen_classes(self.predict_proba(data, asked), cut, asked)
        return np.asarray(self.classes(asked)[chosen])

    def marginal(self, names: Iterable[str]) -> Distribution:
        """Return the distribution of some of the variables."""
        return self.density.marginal(names)

    def conditional(self, evidence: Mapping[str, Any]) -> Distribution:
        """Return the distribution of the other variables given the value of some."""
        return self.density.conditional(evidence)

    def moments(self, name: str, data: Any) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of a number given what each row holds, both of shape (n,)."""
        return self.density.moments(name, self._frame(data))

    def mpe(self, data: Any) -> pd.DataFrame:
        """Fill missing values by the most probable explanation of each row."""
        return self.density.mpe(self._frame(data))

    def sample(self, n: int, seed: int | None = None, given: Any = None) -> pd.DataFrame:
        """Draw rows; see :meth:`~flwr_causal.core.circuits.distribution.Distribution.sample`."""
        evidence = given if given is None or isinstance(given, Mapping) else self._frame(given)
        return self.density.sample(n, seed, evidence)

    def out_of_reach(self) -> CircuitModel:
        """Return the model without access to parties, as it is after a run."""
        return replace(self, density=self.density.out_of_reach())

    def save(self, path: str | Path) -> None:
        """Write a JSON file and, beside it, density and posterior in a directory of its name."""
        place = Path(path)
        parts = {"density": self.density, "posterior": self.posterior}
        kinds = {name: type(part).__name__ for name, part in parts.items() if part is not None}
        settings = {"target": self.target, "threshold": self.threshold, "row_id": self.row_id}
        plain = {"format": MODEL_FORMAT, **settings, **kinds}
        with writing(place, "model"):
            for name in kinds:
                parts[name].save(place.with_suffix("") / name)  # type: ignore[union-attr]
            write(place, json.dumps(plain))

    @classmethod
    def load(cls, path: str | Path) -> CircuitModel:
        """Read what :meth:`save` wrote; a DataError if the files hold something else."""
        place = Path(path)
        try:
            plain = json.loads(place.read_text(encoding="utf-8"))
            if plain["format"] != MODEL_FORMAT:
                raise KeyError("format")
            kinds = {name: plain[name] for name in ("density", "posterior") if name in plain}
            classes = {name: PARTS[kind] for name, kind in kinds.items()}
        except DAMAGE as error:
            raise DataError(f"{place} does not hold a circuit model ({error!r})") from error
        parts = {name: kind.load(place.with_suffix("") / name) for name, kind in classes.items()}
        settings = {name: plain[name] for name in ("target", "threshold", "row_id")}
        return cls(**settings, **parts)

    def _frame(self, data: Any, unread: str = "") -> Any:
        """Return data as one frame with named columns, in which unseen states are missing.

        The column ``unread`` is not checked.
        """
        import pandas as pd

        if hasattr(data, "columns"):
            return self._with_known_states(data, unread)
        if isinstance(data, Mapping):
            row = {name: [value] if np.ndim(value) == 0 else value for name, value in data.items()}
            return self._with_known_states(pd.DataFrame(row), unread)
        if isinstance(data, np.ndarray):
            names = self.domain.names
            if data.ndim != 2 or data.shape[1] != len(names):
                raise DataError(
                    f"an array of rows has the shape (rows, {len(names)}), its columns being "
                    f"{', '.join(names)}; got {data.shape}: give a frame where columns are missing"
                )
            return self._with_known_states(pd.DataFrame(data, columns=list(names)), unread)
        return self._with_known_states(joined_tables(list(data), self.row_id), unread)

    def _with_known_states(self, frame: Any, unread: str) -> Any:
        """Return a frame in which states that no party has are missing, with a warning."""
        frame, replaced = with_forms(frame), {}
        for variable in self.domain.variables:
            if variable.states is None or variable.name == unread:
                continue
            if list(frame.columns).count(variable.name) != 1:
                continue
            column, number = without_unseen(frame[variable.name], variable.states)
            if number:
                replaced[variable.name] = column
                warnings.warn(
                    f"column {variable.name!r}: {number} rows hold values that no party had when "
                    "the circuit was trained; they count as missing",
                    stacklevel=4,
                )
        return frame.assign(**replaced) if replaced else frame

    def _target_or_default(self, target: str | None) -> str:
        asked = target or self.target
        if asked is None:
            raise ConfigError(
                "the circuit was trained without a target: name the column to predict"
            )
        return asked


class LogisticHead(NamedTuple):
    """Weights of the leaves (m,) and biases of the classes (C,), -inf for a class without rows.

    ``log P(c | x) = b_c + sum_j w_j f_cj(x) - log of the normaliser``, where ``f_cj`` is the log
    density of leaf j under class c, and w_j its weight.
    """

    weights: FloatArray
    biases: FloatArray

    def log_posterior(self, features: FloatArray) -> FloatArray:
        """Log probability of each class (n, C) from log densities (n, C, m)."""
        scores = features @ self.weights + self.biases
        return np.asarray(scores - logsumexp(scores, axis=1, keepdims=True))


class Posterior(Protocol):
    """Predicts the class of a row: a `Distribution`, or a `HeadPosterior`."""

    def predict_proba(self, data: Any, target: str) -> FloatArray:
        """Probability of each class given the rest of each row, shape (n, classes)."""
        ...

    def save(self, directory: str | Path) -> None:
        """Write into a directory."""
        ...


@dataclass(frozen=True, eq=False)
class HeadPosterior(SingleThreaded):
    """Posterior of the class by a logistic head.

    Missing values are integrated out of each leaf; a leaf without known values has the log density
    0. Data and labels are those of `Circuit`.

    Parameters
    ----------
    domain : Domain
    target : str
        Name of the class.
    leaves : tuple of tuples of Leaf
        For each class m leaves, of the same scopes for all classes. Their log densities are the
        features.
    head : LogisticHead
    """

    domain: Domain
    target: str
    leaves: tuple[tuple[Leaf, ...], ...]
    head: LogisticHead

    def predict_proba(self, data: Any, target: str | None = None) -> FloatArray:
        """Probability of each class, shape (n, classes); the target in the data is not read.

        Raises
        ------
        ConfigError
            For another target than the head's.
        """
        if target not in (None, self.target):
            raise ConfigError(f"the head predicts {self.target!r}, not {target!r}: ask the circuit")
        names = [name for name in self.domain.names if name != self.target]
        return np.exp(self.head.log_posterior(self.features(self.domain.encode(data, names))))

    def features(self, values: FloatArray) -> FloatArray:
        """Log densities of values (n, d) under the leaves, NaN integrated out, (n, C, m)."""
        flat = [leaf for group in self.leaves for leaf in group]
        densities = np.empty((len(flat), len(values)))
        for kind in {type(leaf) for leaf in flat}:
            of_kind = [i for i, leaf in enumerate(flat) if type(leaf) is kind]
            densities[of_kind] = kind.batch([flat[i] for i in of_kind]).log_density(values)
        return densities.reshape(len(self.leaves), -1, len(values)).transpose(2, 0, 1)

    def save(self, directory: str | Path) -> None:
        """Write ``head.json`` and ``head.npz`` into a directory; numbers survive exactly."""
        flat = [leaf for group in self.leaves for leaf in group]
        plain = {
            "format": HEAD_FORMAT,
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
        """Read what :meth:`save` wrote; a DataError if the files hold something else."""
        try:
            plain, arrays = read_pair(directory, "head", HEAD_FORMAT)
            head = LogisticHead(arrays.pop("weights"), arrays.pop("biases"))
            by_leaf: list[dict[str, NDArray[Any]]] = [{} for _ in plain["leaves"]]
            for key, array in arrays.items():
                number, _, name = key.partition(".")
                by_leaf[int(number)][name] = array
            flat = [
                KINDS[one["kind"]].from_arrays(one["scope"], parameters)
                for one, parameters in zip(plain["leaves"], by_leaf, strict=True)
            ]
            domain = Domain.from_plain(plain["domain"])
        except (ValueError, KeyError, IndexError, TypeError, CausalError) as error:
            raise DataError(
                f"{directory} does not hold a head ({error!r}): save it again"
            ) from error
        m = len(head.weights)
        leaves = tuple(tuple(flat[start : start + m]) for start in range(0, len(flat), m))
        return cls(domain, plain["target"], leaves, head)


#: The classes of a model's density and posterior, by their names in files.
PARTS: dict[str, Any] = {part.__name__: part for part in (Circuit, FederatedCircuit, HeadPosterior)}

# Log odds between bins: .02 nats are at most half a percent of probability.
EDGES = np.linspace(-12.0, 12.0, 1201)


def log_odds_counts(log_posterior: FloatArray, classes: NDArray[np.int64]) -> FloatArray:
    """Count rows by class and log odds.

    Parameters
    ----------
    log_posterior : ndarray of float, shape (n, 2)
        Of rows that the posterior was not trained on.
    classes : ndarray of int, shape (n,)

    Returns
    -------
    ndarray of float, shape (2, 1202)
    """
    odds = log_posterior[:, 1] - log_posterior[:, 0]
    bins = np.searchsorted(EDGES, odds, side="right")
    counts = np.zeros((2, len(EDGES) + 1))
    np.add.at(counts, (classes, bins), 1.0)
    return counts


def best_threshold(counts: FloatArray) -> tuple[float, float]:
    """Return the probability from which on the second class is predicted, and its macro F1.

    Parameters
    ----------
    counts : ndarray of float, shape (2, 1202)
        As of `log_odds_counts`, summed over parties.
    """
    below = counts[:, :-1].cumsum(axis=1)  # rows below each edge, predicted as the first class
    above = counts.sum(axis=1, keepdims=True) - below
    with np.errstate(invalid="ignore"):
        negative = 2.0 * below[0] / (2.0 * below[0] + below[1] + above[0])
        positive = 2.0 * above[1] / (2.0 * above[1] + above[0] + below[1])
    macro = (np.nan_to_num(negative) + np.nan_to_num(positive)) / 2.0
    # Of neighbouring edges with the same counts the middle one is taken.
    best = np.flatnonzero(macro >= macro.max() - 1e-12)
    stretch = best[: int(np.argmax(np.append(np.diff(best) > 1, True))) + 1]
    at = int(stretch[len(stretch) // 2])
    return float(1.0 / (1.0 + np.exp(-EDGES[at]))), float(macro[at])

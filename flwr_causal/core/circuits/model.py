"""What a training of circuits ends in: a density, and what tells the class of a row."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.circuits.domain import without_unseen
from flwr_causal.core.circuits.joined_tables import joined_tables
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd
    from numpy.typing import NDArray

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.circuits.distribution import Distribution
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.head_posterior import Posterior


FORMAT = "flwr-causal circuit model 1"

# What a model may be made of, by the name that is written beside it, and where that lives.
PARTS = {
    "Circuit": "circuit",
    "FederatedCircuit": "composed.federated_circuit",
    "HeadPosterior": "head_posterior",
}


@dataclass(frozen=True, eq=False)
class CircuitModel:
    """A joint distribution with a class that is usually asked for.

    Data are frames, columns found by name; mappings of such columns, of single values for one row;
    or arrays with all columns in their order. Columns and values that are missing are summed or
    integrated out, and so are, with a warning, categories that nobody had in training. Where no
    single frame holds all columns, a sequence of frames with a column of ids is joined by it.

    Parameters
    ----------
    density : Distribution
        Answers everything but the class: a `Circuit`, or one whose parts stay with the parties.
    target : str, optional
        The class. None: there is none.
    posterior : Posterior, optional
        Tells the class where something tells it better than the density does. Default: the density.
    threshold : float, optional
        Of two classes the second is predicted from this probability on. Default: the more probable.
    row_id : str
        The column of ids in sequences of frames.
    """

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
        return self.density.classes(self._asked(target))

    def predict_proba(self, data: Any, target: str | None = None) -> FloatArray:
        """Probability of each class given the rest of each row, shape (n, classes)."""
        asked = self._asked(target)
        return self._teller(asked).predict_proba(self._frame(data, asked), asked)

    def predict(
        self, data: Any, target: str | None = None, threshold: float | None = None
    ) -> NDArray[Any]:
        """Return the class of each row, as labels were given, shape (n,).

        Parameters
        ----------
        data : DataFrame or array of values
        target : str, optional
            Default: the model's.
        threshold : float, optional
            In place of the trained one.
        """
        asked = self._asked(target)
        cut = self.threshold if threshold is None and asked == self.target else threshold
        return self._teller(asked).predict(self._frame(data, asked), asked, threshold=cut)

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
        """Return the model after its run: parties that kept circuits can be asked no more."""
        return replace(self, density=self.density.out_of_reach())

    def save(self, path: str | Path) -> None:
        """Write a JSON file and, beside it, what it is made of in a directory of the same name."""
        place = Path(path)
        parts = {"density": self.density, "posterior": self.posterior}
        kinds = {name: type(part).__name__ for name, part in parts.items() if part is not None}
        own = {"target": self.target, "threshold": self.threshold, "row_id": self.row_id}
        plain = {"format": FORMAT, **own, **kinds}
        for name in kinds:
            parts[name].save(place.with_suffix("") / name)  # type: ignore[union-attr]
        place.write_text(json.dumps(plain), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> CircuitModel:
        """Read what :meth:`save` wrote; a DataError if it is something else."""
        place = Path(path)
        try:
            plain = json.loads(place.read_text(encoding="utf-8"))
            if plain["format"] != FORMAT:
                raise KeyError("format")
            kinds = {name: plain[name] for name in ("density", "posterior") if name in plain}
            classes = {name: _part(kind) for name, kind in kinds.items()}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{place} does not hold a circuit model ({error!r})") from error
        parts = {name: kind.load(place.with_suffix("") / name) for name, kind in classes.items()}
        own = {name: plain[name] for name in ("target", "threshold", "row_id")}
        return cls(**own, **parts)

    def _frame(self, data: Any, unread: str = "") -> Any:
        """Return data as one frame with the columns' names; unseen categories are missing.

        A column that will not be read may hold anything.
        """
        import pandas as pd

        if hasattr(data, "columns"):
            return self._seen(data, unread)
        if isinstance(data, Mapping):
            row = {name: [value] if np.ndim(value) == 0 else value for name, value in data.items()}
            return self._seen(pd.DataFrame(row), unread)
        if isinstance(data, np.ndarray):
            names = self.domain.names
            if data.ndim != 2 or data.shape[1] != len(names):
                raise DataError(
                    f"an array of rows has the shape (rows, {len(names)}), its columns being "
                    f"{', '.join(names)}; got {data.shape}: give a frame where columns are missing"
                )
            return self._seen(pd.DataFrame(data, columns=list(names)), unread)
        return self._seen(joined_tables(list(data), self.row_id), unread)

    def _seen(self, frame: Any, unread: str) -> Any:
        """Return a frame in which categories that no party has are missing, with a warning."""
        replaced = {}
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

    def _teller(self, target: str) -> Posterior:
        if target == self.target and self.posterior is not None:
            return self.posterior
        return self.density

    def _asked(self, target: str | None) -> str:
        asked = target or self.target
        if asked is None:
            raise ConfigError(
                "the circuit was trained without a target: say which column is to be predicted"
            )
        return asked


def _part(kind: str) -> Any:
    """Return the class of a part of a model."""
    return getattr(import_module(f"flwr_causal.core.circuits.{PARTS[kind]}"), kind)

"""Total effects of fitted systems: of numbers and of blocks of columns, within a step and later."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.answers import NO_EFFECT, Answers
from flwr_causal.core.arguments import COUNT, shown
from flwr_causal.core.blocks.contrasts import contrast
from flwr_causal.core.blocks.design import blocks_of_columns, has_scores
from flwr_causal.core.blocks.disagreement import disagreement
from flwr_causal.core.graphs.acyclicity import ancestors
from flwr_causal.core.graphs.adjustment import with_past
from flwr_causal.core.graphs.equivalence import undirected_part
from flwr_causal.core.graphs.graph import pair_of
from flwr_causal.core.linear.effects import along_paths, by_optimal_set, possible_effects
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.linear.parties import known_parties
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from flwr_causal.core.answers import Effect
    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.blocks.design import Variable
    from flwr_causal.core.linear.effects import Blocks, Contrast


class SystemWithEffects(Answers):
    """Base of the systems of a DAG, or of its class, with the moments of their columns.

    Subclasses say which variables, moments and edges they have.

    Examples
    --------
    >>> from flwr_causal import simulate
    >>> from flwr_causal.data.synthetic.linear import federated_linear
    >>> model = simulate("moments", federated_linear(3, 200, 2)[0]).model
    >>> model.can("total_effect"), model.total_effect("x0", "x1").interval is not None
    (True, True)
    """

    if TYPE_CHECKING:

        @property
        def names(self) -> tuple[str, ...]:
            """Names of the d variables."""

        @property
        def lagged(self) -> Any:
            """The weights or edges of each lag, ``(p, d, d)``."""

        @property
        def party_moments(self) -> Mapping[str, SampleMoments] | None:
            """By party, the moments of its rows; None where they are unknown."""

    @property
    def order(self) -> int:
        """Number of lags p."""
        return len(self.lagged)

    def total_effect(
        self,
        cause: str,
        effect: str,
        *,
        lag: int = 0,
        state: Any = None,
        reference: Any = None,
        outcome: Any = None,
        level: float = 0.95,
        by_party: bool = False,
    ) -> Effect | list[Effect]:
        """Return how much the effect changes on average if the cause is raised, or set to a state.

        Of series the cause is raised or set in the step ``lag`` steps before, and in that step
        only.

        The estimate is a contrast of the coefficients of the regression of the effect on the cause
        and the optimal adjustment set (:meth:`CausalGraph.adjustment_set`), of series of variables
        at t and before, with its classical standard error. With a lag, if the moments of that
        regression are unknown (``notears-admm`` asks for few moments), or the rows differ between
        variables (interventions on numbers), it is the sum over directed paths of the products of
        their coefficients, with a standard error by the delta method. Without a directed path it is
        exactly 0.

        Parameters
        ----------
        cause, effect : str
            Two variables; with a lag they may be the same.
        lag : int, default 0
            Number of steps from the cause to the effect; it may exceed the number of lags p.
        state, reference : object, optional
            To which state the cause is set, in place of which other one. Of a number two values;
            default, where its effects are linear: the cause is raised by 1.
        outcome : object, optional
            A state of the effect, whose probability changes. Of a number its mean changes.
        level : float, default 0.95
            Of the confidence interval, which is that of least squares.
        by_party : bool, default False
            Whether the standard error allows for differences between parties in effects and noise
            (clustered by party; of few parties it is itself uncertain, and intervals are wide).

        Returns
        -------
        Effect or list of Effect
            In the units of the effect, or as a difference of probabilities; between normal scores
            (:attr:`of_scores`) in standard deviations of them. The adjustment set has
            names such as ``x[t-1]``. The list of :meth:`possible_effects` where an equivalence
            class leaves it open; of numbers whenever the model stands for a class.

        Raises
        ------
        DataError
            If a variable is unknown, rows are too few, or the adjustment set determines the cause.
        ConfigError
            If the model has no moments of rows, or with `by_party` none of two parties or more; a
            state or the outcome is missing or not possible; the level is not between 0 and 1; the
            lag is no number of steps, or the model has none; or there is a lag and the class leaves
            directions open.
        """
        self._require("total_effect")
        if not COUNT.fits(lag):
            raise ConfigError(f"lag is {shown(lag)}: expected 0, 1, 2, ...")
        if lag and not self.order:
            raise ConfigError(f"lag is {lag}, and the model has no lags: leave it out")
        pair = pair_of(self.names, cause, effect, same=lag > 0)
        blocks, marks = self._blocks(by_party), with_past(self._class, self.lagged != 0)
        asked = self._asked(pair, state, reference, outcome)
        is_open, found = bool(undirected_part(self._class).any()), None
        one_regression = isinstance(blocks.moments, SampleMoments) or (is_open and not self.order)
        if lag == 0 and self._lists_effects and one_regression:
            return possible_effects(blocks, marks, pair, asked, level)
        if is_open and (lag or self._lists_effects):
            raise ConfigError(
                "effects with a lag, or under interventions, need the directions of all edges "
                "within a step, and this model stands for an equivalence class: direct its edges "
                "by knowledge; without a lag possible_effects lists the effects"
            )
        if lag == 0:
            found = by_optimal_set(blocks, marks, pair, asked, level)
        if found is None and is_open:
            return possible_effects(blocks, marks, pair, asked, level)
        if found is None:
            found = self._along_paths(blocks, pair, asked, lag, level)
        return [found] if self._lists_effects else found

    def possible_effects(
        self,
        cause: str,
        effect: str,
        *,
        state: Any = None,
        reference: Any = None,
        outcome: Any = None,
        level: float = 0.95,
        by_party: bool = False,
    ) -> list[Effect]:
        """Return the total effects in the DAGs of the model's equivalence class (local IDA).

        There is an effect for each set of parents that the cause has in a DAG of the class, which
        are adjusted for (Maathuis, Kalisch & Bühlmann, 2009); of series these are effects within a
        step, and parents at t and before. Different sets may give the same effect. A model of a DAG
        has one set. Small sets come first, of sets of one size the smaller effect.

        Parameters and errors are those of :meth:`total_effect`; a DataError also if a moment is
        unknown.
        """
        self._require("possible_effects")
        pair = pair_of(self.names, cause, effect)
        asked, blocks = self._asked(pair, state, reference, outcome), self._blocks(by_party)
        if self.order and not isinstance(blocks.moments, SampleMoments):
            raise ConfigError(
                "possible effects need rows that are the same for all variables, and under known "
                "interventions they differ: direct the edges by background knowledge"
            )
        marks = with_past(self._class, self.lagged != 0)
        return possible_effects(blocks, marks, pair, asked, level)

    @property
    @abstractmethod
    def _variables(self) -> Sequence[Variable]:
        """The d variables, of series with their lags."""

    @property
    def of_scores(self) -> bool:
        """Whether numbers are normal scores, in whose standard deviations effects are."""
        return has_scores(self._variables)

    @property
    @abstractmethod
    def _class(self) -> BoolArray:
        """The DAG or the class of the edges without a lag, ``(d, d)``."""

    @property
    @abstractmethod
    def _edges(self) -> BoolArray:
        """The parents of each variable in a DAG of the class, ``((1 + p) d, d)``."""

    @property
    @abstractmethod
    def _lists_effects(self) -> bool:
        """Whether effects are listed also where the class decides them."""

    @property
    @abstractmethod
    def _rows(self) -> SampleMoments | tuple[SampleMoments, ...]:
        """Moments of the columns, or for each variable its own; a ConfigError if there are none."""

    def disagreement(self) -> pd.DataFrame:
        """Compare each party with the others that agree: effects along edges, levels, spreads.

        Returns
        -------
        DataFrame
            See :func:`flwr_causal.core.blocks.disagreement.disagreement`.

        Raises
        ------
        ConfigError
            If the moments of two parties or more are not known.
        """
        self._require("disagreement")
        return disagreement(self._variables, self.party_moments or {}, self._edges)

    @abstractmethod
    def _response(
        self, change: FloatArray, reading: FloatArray, lag: int
    ) -> tuple[float, FloatArray]:
        """Return the derivative of a weighted sum of columns in step t + lag by a change in t.

        Parameters
        ----------
        change, reading : ndarray
            By how much the columns at t are raised, and the weights of the sum.
        lag : int
            Number of steps between.

        Returns
        -------
        value : float
        gradient : ndarray of shape (columns at t and before, columns at t)
            The value's derivatives by the coefficients of all columns on their parents.
        """

    def _blocks(self, by_party: bool) -> Blocks:
        """Return the moments, with those of each party's rows if they are wanted."""
        if by_party and not isinstance(self._rows, SampleMoments):
            raise ConfigError(
                "standard errors by party need rows that are the same for all variables, and here "
                "parties act on some: leave by_party out"
            )
        parties = list(known_parties(self.party_moments).values()) if by_party else []
        return blocks_of_columns(self._variables, self._rows, parties)

    def _asked(self, pair: tuple[int, int], state: Any, reference: Any, outcome: Any) -> Contrast:
        cause, effect = (self._variables[k] for k in pair)
        return contrast(cause, effect, state, reference, outcome)

    def _along_paths(
        self, blocks: Blocks, pair: tuple[int, int], asked: Contrast, lag: int, level: float
    ) -> Effect:
        """Return the effect over directed paths, by the coefficients of all families."""
        if not reaches(self._class, self.lagged != 0, lag)[pair]:
            return NO_EFFECT
        now = sum(len(own) for own in blocks.columns[: len(self.names)])
        change, reading = np.zeros((2, now))
        change[blocks.columns[pair[0]]], reading[blocks.columns[pair[1]]] = asked
        value, gradient = self._response(change, reading, lag)
        return along_paths(blocks, value, gradient, self._edges, level)


def reaches(now: BoolArray, past: BoolArray, lag: int) -> BoolArray:
    """Return which variables a directed path joins with which others, some steps later, (d, d).

    Parameters
    ----------
    now : ndarray of bool, shape (d, d)
        A DAG.
    past : ndarray of bool, shape (p, d, d)
    lag : int
        Number of steps from the first variable to the second.
    """
    # With 1 for each edge, the entries above 0 are those that a directed path joins.
    reach = (ancestors(now) | np.eye(len(now), dtype=bool)).astype(np.float64)
    return np.asarray(responses(reach, reach, past.astype(np.float64), lag)[lag] > 0)


def responses(start: FloatArray, total: FloatArray, lagged: FloatArray, steps: int) -> FloatArray:
    """Return the effects of changes in step 0 on later steps.

    Parameters
    ----------
    start : ndarray of shape (k, d)
        Changes of all variables in step 0.
    total : ndarray of shape (d, d)
        ``(I - W)^{-1}``, the effects within a step.
    lagged : ndarray of shape (p, d, d)
    steps : int

    Returns
    -------
    ndarray of shape (1 + steps, k, d)
    """
    reduced = lagged @ total
    result = np.zeros((1 + steps, *start.shape))
    result[0] = start
    for step in range(1, 1 + steps):
        for lag in range(1, min(step, len(lagged)) + 1):
            result[step] += result[step - lag] @ reduced[lag - 1]
    return result

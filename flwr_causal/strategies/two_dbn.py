"""2Dbn (Chen, Ma & Yue 2024): federated dynamic Bayesian networks, the server's side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from flwr_causal.contract.answers import step
from flwr_causal.core.consensus.schedules import TUNED_LAGGED, Tuning
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.core.options import bounded, number_or_none, require
from flwr_causal.core.parts import Part, all_but, option, words
from flwr_causal.data.kinds import DataKind
from flwr_causal.protocol.consensus import ROUND, TWO_DBN
from flwr_causal.strategies.admm import OF_ADMM, ADMMOptions, consensus_of_parties
from flwr_causal.strategies.base import CausalStrategy
from flwr_causal.strategies.series import (
    Lagged,
    PenalisedLags,
    SeriesOptions,
    by_block,
)
from flwr_causal.strategies.two_dbn_personalised import (
    OF_PERSONALISED,
    PROXIMITY,
    SPARSITY,
    PersonalisedProblem,
    personalised_networks,
)
from flwr_causal.strategies.variant import OfPaper

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.consensus import admm
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.protocol.contract import Contract
    from flwr_causal.runtime.algorithm import Steps
    from flwr_causal.strategies.admm_fit import FitCandidate
    from flwr_causal.strategies.options import takes


#: The settings of Chen, Ma & Yue (2024).
OF_PAPER = OfPaper(
    # Section 4, "Data Generation & Settings": rho_2 = rho_1, phi_2, phi_1.
    constants={
        "consensus_penalty": 1.0,
        "acyclicity_penalty": 1.0,
        "consensus_growth": 1.1,
        "acyclicity_growth": 1.6,
    },
    fixed={**OF_ADMM, "select_order": False},
    defaults={
        # Section 7.3: 0.5 performs well in all cases; section 4.2 chooses from 0.05 to 0.5 by the
        # truth, sections 7.5 and 7.6 have less for other data.
        "sparsity": 0.5,
        # Figure 1, of one example.
        "threshold": 0.3,
    },
)


@dataclass(frozen=True, kw_only=True)
class PartyNetworks(Part):
    """A network of each party near the common one.

    Parameters
    ----------
    proximity : float or "auto", default "auto"
        mu, how strongly the parties' networks are drawn to the common one, in units of the data's
        variance; 0 leaves every party alone. "auto" is 40 divided by the mean number of a party's
        rows: the common network then counts as much as 80 rows.
    """

    text = "variant='personalised'"
    gives = all_but("candidates")

    proximity: float | Literal["auto"] = bounded("auto", least=0)


@dataclass(frozen=True, kw_only=True)
class SeveralLags(Part):
    """Two lags or more, among whose numbers can be chosen.

    Parameters
    ----------
    select_order : bool, default False
        Choose the number of lags, 1 to ``order``, by the held-out error (with ``sparsity="bic"`` by
        the BIC). All orders are fitted in the same rounds.
    """

    text = "order=2 or more"

    select_order: bool = False


class HeldOutOrder(Part):
    """The number of lags by the error on held-out rows."""

    text = "select_order=True"
    needs = words("folds")
    chosen_by = ("select_order",)
    instead = "False, or given with sparsity='bic',"


@dataclass(frozen=True, kw_only=True)
class TwoDBNOptions(PartyNetworks, SeveralLags, SeriesOptions, ADMMOptions):
    """The options of :class:`TwoDBN`.

    Parameters
    ----------
    max_rounds : int or None, default None
        None is 25 (24 rounds and the refit), or 200 with ``variant="paper"``, for which the paper
        gives no number.
    variant : {"default", "paper", "personalised"}, default "default"
        "paper": penalties from 1 that grow by the factors 1.1 and 1.6 (section 4), and the loss of
        a party divided by its own rows (section 3, where the matrices S, M and N are defined).
        The paper chooses lambda by the true graph from 0.05 to 0.5: ``sparsity`` is a number,
        left out 0.5 (section 7.3). ``threshold`` is 0.3 if left out (figure 1). "personalised":
        the paper's second version (PFDBNL). Every party has a network of its own, drawn to the
        common one; ``local_graphs`` is True, and the common graph is that of the mean of the
        parties' weights, without the weakest edges of cycles within a step. ``max_rounds`` is 26 if
        left out, and ``sparsity`` "auto" or a number in the units of the data's variance.
    threshold : float or None, default None
        Threshold of instantaneous edges. None is 0.15: with the paper's 0.3 its program finds
        almost no edges in small samples.
    center : {"auto", "global", "series", "phase"}, default "auto"
        Subtract the mean over all parties' rows ("global"), or that of each series ("series").
        "auto" is "series" where a party says that the levels of its series differ beyond chance,
        given their lags (``core.linear.levels``); a warning says so. Else it is "global". With
        "phase" rows under a known perturbation are centred by their own mean within the series and
        all other rows by their mean over all parties.
    order, lagged_threshold, lagged_sparsity, series_column, time_column, gaps, phase_column, \
perturbed_from, perturbed_to
        See :class:`~flwr_causal.strategies.series.SeriesOptions`.

    Examples
    --------
    >>> from flwr_causal.strategies.two_dbn import TwoDBNOptions
    >>> TwoDBNOptions(order=2).order
    2
    """

    variant: Literal["default", "paper", "personalised"] = option(  # type: ignore[assignment]
        "default", needs={"personalised": ("replies",)}
    )
    center: Literal["auto", "global", "series", "phase"] = "auto"  # type: ignore[assignment]

    @property
    def role_columns(self) -> tuple[str, ...]:
        """The columns that are not variables."""
        return (*super().role_columns, *self.series_columns)

    @property
    def parts(self) -> tuple[type[Part], ...]:
        """The parts that the values choose, also lags and networks of the parties."""
        found = list(super().parts)
        if self.order:
            found += [Lagged, PenalisedLags]
        if self.order > 1:
            found.append(SeveralLags)
        if self.select_order and self.sparsity != "bic":
            found.append(HeldOutOrder)
        if self.variant == "personalised":
            found.append(PartyNetworks)
        return tuple(found)

    _usual_rounds: ClassVar[int] = 25
    _usual_threshold: ClassVar[float] = 0.15
    _searched_threshold: ClassVar[float] = 0.15

    @property
    def tunings(self) -> Mapping[int, Tuning]:
        """Those of designs with lags."""
        return TUNED_LAGGED

    @property
    def of_paper(self) -> OfPaper:
        """The settings of Chen, Ma & Yue (2024), of the version that the variant names."""
        return OF_PERSONALISED if self.personalised else OF_PAPER

    @property
    def personalised(self) -> bool:
        """Whether every party has a network of its own, as in the paper's second version."""
        return self.variant == "personalised"

    @property
    def compares_parties(self) -> bool:
        """Whether own graphs follow from how a party's moments differ from the others'."""
        return super().compares_parties and not self.personalised

    @property
    def leaves_reported(self) -> bool:
        """Whether columns leave that others determine; the personalised form has no masks."""
        return not self.personalised

    def thresholds(self, agreement: Agreement, usual: float) -> FloatArray:
        """Return the thresholds on the weights of the design's columns, shape (m, 1)."""
        limits = self.limits(usual if self.threshold is None else self.threshold)
        return by_block(*limits, len(agreement.names), self.order)

    @property
    def candidates(self) -> tuple[FitCandidate, ...]:
        """Every sparsity with every number of lags, the largest first."""
        given = super().candidates
        if not self.select_order:
            return given
        known = self.known or Knowledge()
        least = max((lag for *_, lag in known.required_lagged), default=1)
        orders = range(self.order, least - 1, -1)
        return tuple(candidate._replace(lags=p) for p in orders for candidate in given)

    def block_sparsity(self, num_variables: int) -> FloatArray:
        """Return the factors on the sparsity of the design's columns, shape (m, 1)."""
        return by_block(1.0, self.lagged_factor(self.sparsity), num_variables, self.order)

    def own_problem(self, agreement: Agreement) -> PersonalisedProblem:
        """Return the settings of the problem with a network of each party."""
        d, rows = len(agreement.names), agreement.n / agreement.num_parties
        sparsity, near = (number_or_none(value) for value in (self.sparsity, self.proximity))
        if sparsity is None:
            sparsity = SPARSITY * float(np.sqrt(np.log(max(d, 2)) / rows))
        else:
            sparsity /= self.noise_scale(agreement)
        lagged = 1.0 if self.lagged_sparsity is None else self.lagged_sparsity
        assert self.max_rounds is not None  # see `settled`
        return PersonalisedProblem(
            rounds=self.max_rounds - 1,
            sparsity=sparsity * by_block(1.0, lagged, d, self.order)[:, 0],
            proximity=PROXIMITY / rows if near is None else near,
            thresholds=self.thresholds(agreement, self._usual_threshold)[:, 0],
        )


class TwoDBN(CausalStrategy):
    """Federated structure learning from time series (Chen, Ma & Yue 2024).

    The model is ``x_t = x_t W + x_{t-1} A_1 + ... + x_{t-p} A_p + noise`` (row vectors) with W
    acyclic. With the rows [x_t, x_{t-1}, ..., x_{t-p}] it is the consensus ADMM of
    NOTEARS-ADMM, whose options it shares
    (:class:`~flwr_causal.strategies.admm.ADMMOptions`); the acyclicity acts on W alone.

    **What leaves a party**: as for NOTEARS-ADMM, but arrays of m x d, and in the last exchange of
    (1 + m) x (1 + m), m = d (1 + p).

    References
    ----------
    Chen, Ma & Yue (2024). Temporal causal discovery in dynamic Bayesian networks using
    federated learning.

    Examples
    --------
    >>> from flwr_causal import simulate
    >>> from flwr_causal.data.synthetic.series import federated_dynamic
    >>> from flwr_causal.strategies import TwoDBN
    >>> parties, truth = federated_dynamic(3, 200, 2)
    >>> simulate(TwoDBN(order=1), parties).graph.lagged.shape
    (1, 3, 3)
    """

    options_type = TwoDBNOptions
    options: TwoDBNOptions

    if TYPE_CHECKING:

        @takes(TwoDBNOptions)
        def __init__(self, **options: Any) -> None: ...

    contract: ClassVar[Contract] = TWO_DBN

    def train(self, agreement: Agreement, replicate: int = 0) -> Steps:
        """Solve for one network of all parties, or for one of each near the common one.

        Yields
        ------
        Ask
            See :func:`~flwr_causal.strategies.admm.consensus_of_parties`, and of the personalised
            version :func:`~flwr_causal.strategies.two_dbn_personalised.personalised_networks`.

        Returns
        -------
        Result
        """
        options, start = self.options, self._initial_weights(agreement, self.options.order)
        if options.personalised:
            problem = options.own_problem(agreement)
            own = personalised_networks(problem, agreement, start, with_own=not replicate)
            return (yield from own)
        with_own = options.local_graphs and not replicate
        return (
            yield from consensus_of_parties(
                options, agreement, start, self.next_problem, with_own=with_own
            )
        )

    @step(ROUND.when)
    def next_problem(
        self, problem: admm.ServerProblem, state: admm.ServerState
    ) -> admm.ServerProblem:
        """Return the server's problem of the next round; a subclass may change it.

        Parameters
        ----------
        problem : ServerProblem
            Of the last round.
        state : ServerState
            After it, with W as ``weights``, shape (1, m, d).
        """
        return problem

    def validate(self) -> None:
        """Check that the options fit each other."""
        self.options.check()
        super().validate()
        self.options.check_search()
        fits = not self.options.papers or number_or_none(self.options.sparsity) is not None
        require(fits, "sparsity", self.options.sparsity, "a number with variant='paper'")
        self.options.check_series()

    @property
    def data(self) -> DataKind:
        """Time series, or rows without time if the order is 0."""
        return DataKind.SERIES if self.options.order else DataKind.LINEAR

    @property
    def _initial_names(self) -> tuple[str, ...]:
        """The names of the weights to start from: of W, and with lags of the lagged weights."""
        return ("weights", "lagged") if self.options.order else ("weights",)

"""NOTEARS-ADMM and NOTEARS-MLP-ADMM (Ng & Zhang, AISTATS 2022): the server's side."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from flwr_causal.contract.answers import step
from flwr_causal.core.consensus import perceptrons
from flwr_causal.core.nonlinear.notears_mlp import strength_graph
from flwr_causal.core.nonlinear.perceptrons import Network
from flwr_causal.core.parts import Part, option
from flwr_causal.doubts.graphs import plausible
from flwr_causal.protocol import consensus
from flwr_causal.runtime.algorithm import Ask, Note, Result
from flwr_causal.strategies.admm import OF_ADMM, ADMMOptions, consensus_of_parties
from flwr_causal.strategies.base import CausalStrategy
from flwr_causal.strategies.linear import PerceptronOptions
from flwr_causal.strategies.privacy import PrivateOptions
from flwr_causal.strategies.variant import OfPaper

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.consensus import admm
    from flwr_causal.core.consensus.schedules import Tuning
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.protocol.contract import Contract
    from flwr_causal.runtime.algorithm import Steps
    from flwr_causal.strategies.options import takes


def _of_ng_zhang(penalty: float, sparsity: float) -> OfPaper:
    """Return the settings of Ng & Zhang with the initial penalties and lambda of a model."""
    return OfPaper(
        # Appendix B: rho_2^1 = rho_1^1, gamma_2, gamma_1.
        constants={
            "consensus_penalty": penalty,
            "acyclicity_penalty": penalty,
            "consensus_growth": 1.25,
            "acyclicity_growth": 1.75,
        },
        fixed={
            **OF_ADMM,
            "epsilon": None,
            # Section 5.1, "Bias terms": each client centres its own rows.
            "center": "party",
            # Appendix B.
            "sparsity": sparsity,
            # Section 6, "Methods", after Zheng et al. (2018).
            "threshold": 0.3,
        },
    )


#: The settings of the paper by model (appendix B).
OF_PAPER = {"linear": _of_ng_zhang(1e-3, 0.01), "mlp": _of_ng_zhang(0.1, 0.001)}


@dataclass(frozen=True, kw_only=True)
class NotearsADMMOptions(PerceptronOptions, ADMMOptions, PrivateOptions):
    """The options of :class:`NotearsADMM`.

    Parameters
    ----------
    model : {"linear", "mlp"}, default "linear"
        "mlp" needs torch; its further options are those of
        :class:`~flwr_causal.strategies.linear.PerceptronOptions`.
    variant : {"default", "paper"}, default "default"
        "paper": ``center="party"`` (section 5.1); penalties from 0.001 that grow by the factors
        1.25 and 1.75 and lambda 0.01, with ``model="mlp"`` from 0.1 and 0.001 (appendix B);
        threshold 0.3; 197 rounds, 176 with ``model="mlp"``.
    max_rounds, sparsity, refit, early_stop
        See :class:`~flwr_causal.strategies.admm.ADMMOptions`. With ``model="mlp"`` the
        default adds a small weight decay, and ``sparsity`` is "auto" or a number. With ``refit``
        the parties return in the last exchange the strengths of the edges, the root mean square of
        df_j/dx_i; without it the threshold applies, as in the paper, to the norms of the first
        layers, which have no unit.
    inner_steps : int, default 20
        Largest number of L-BFGS steps of a party in a round, ``model="mlp"``.

    Examples
    --------
    >>> from flwr_causal.strategies.notears_admm import NotearsADMMOptions
    >>> NotearsADMMOptions(max_rounds=20).max_rounds
    20
    """

    model: Literal["linear", "mlp"] = option("linear", needs={"mlp": ("observed", "iterations")})
    inner_steps: int = 20

    @property
    def weighs_in_units(self) -> bool:
        """Whether a weight is a change of the effect, in its units, by one unit of the cause."""
        return self.model == "linear"

    @property
    def parts(self) -> tuple[type[Part], ...]:
        """The parts that the values choose, also perceptrons."""
        return (*super().parts, PerceptronOptions) if self.model == "mlp" else super().parts

    @property
    def of_paper(self) -> OfPaper:
        """The settings of Ng & Zhang (2022) for the model."""
        return OF_PAPER[self.model]

    @property
    def nonlinear(self) -> bool:
        """Whether effects are perceptrons."""
        return self.model == "mlp"

    @property
    def tunings(self) -> Mapping[int, Tuning]:
        """Those of the model."""
        return perceptrons.NEURAL_TUNED if self.nonlinear else super().tunings


class NotearsADMM(CausalStrategy):
    """Federated structure learning by consensus ADMM (Ng & Zhang, AISTATS 2022).

    The parties solve one NOTEARS problem over all rows without sending rows. In a round every party
    receives W, solves its own least-squares problem in closed form (eq. 10) and sends one d x d
    array, B_k + beta_k / rho_2. The server uses only the mean of these arrays; it solves for the
    next W (eq. 5), which is sparse and becomes acyclic. With ``model="mlp"`` (NOTEARS-MLP-ADMM,
    section 5.2) effects are perceptrons that all parties share, and W holds the norms of their
    first layers.

    **What leaves a party**: in the schema exchange names, types, the number of rows and, for each
    column, mean and sum of squared deviations; in every round the d x d array above; in the last
    exchange (``refit``) the sums of each variable, and of products of each variable and its parents
    with each other.
    From the first array alone a server can compute the party's second moments exactly: without
    secure aggregation this method hides no more than :class:`Moments` does. With ``model="mlp"``:
    in every round all parameters of the perceptrons, and in the last exchange the mean squares of
    their slopes, d x d. With ``epsilon`` all of this is computed from one release of the party's
    moments, with noise of its own; numbers of rows are then those that the releases are worth.

    References
    ----------
    Ng & Zhang (2022). Towards federated Bayesian network structure learning with continuous
    optimization. AISTATS.

    Examples
    --------
    >>> from flwr_causal import simulate
    >>> from flwr_causal.data.synthetic.linear import federated_linear
    >>> from flwr_causal.strategies import NotearsADMM
    >>> tables, weights = federated_linear(3, 200, 2)
    >>> simulate(NotearsADMM(max_rounds=20), tables).graph.is_acyclic()
    True
    """

    options_type = NotearsADMMOptions
    options: NotearsADMMOptions

    if TYPE_CHECKING:

        @takes(NotearsADMMOptions)
        def __init__(self, **options: Any) -> None: ...

    contract: ClassVar[Contract] = consensus.NOTEARS_ADMM

    def train(self, agreement: Agreement, replicate: int = 0) -> Steps:
        """Solve for W by rounds of ADMM, or for the parameters of perceptrons.

        Yields
        ------
        Ask
            See :func:`~flwr_causal.strategies.admm.consensus_of_parties`.

        Returns
        -------
        Result
        """
        options = self.options
        if options.model == "mlp":
            return (yield from self._perceptrons(agreement))
        result = yield from consensus_of_parties(
            options,
            agreement,
            self._initial_weights(agreement),
            self.next_problem,
            with_own=options.local_graphs and not replicate,
        )
        if not options.private:
            return result
        # Standard errors and tests by rows know nothing of the noise.
        model = result.model and replace(result.model, sample_moments=None)
        # Each party makes a release with all of the noise.
        privacy = options.guarantee(agreement.names, sharing=1, effective_rows=agreement.n)
        return replace(result, model=model, privacy=privacy)

    @step(consensus.ROUND.when)
    def next_problem(
        self, problem: admm.ServerProblem, state: admm.ServerState
    ) -> admm.ServerProblem:
        """Return the server's problem of the next round; a subclass may change it.

        Parameters
        ----------
        problem : ServerProblem
            Of the last round.
        state : ServerState
            After it, with W as ``weights``, shape (1, d, d).
        """
        return problem

    def _perceptrons(self, agreement: Agreement) -> Steps:
        """Solve for the parameters of perceptrons (section 5.2); then measure the edges."""
        options, masks = self.options, self.options.masks(agreement)
        problem = perceptrons.ServerProblem(
            network=Network(len(agreement.names), (options.hidden,)),
            masks=masks,
            schedule=options.schedule(agreement),
            decay=0.0 if options.papers else perceptrons.NEURAL_DECAY,
            threshold=options._usual_threshold if options.threshold is None else options.threshold,
        )

        def result(strengths: FloatArray, reason: str = "") -> Result:
            graph = strength_graph(agreement.names, strengths, problem.threshold, masks)
            warnings: list[str] = []
            if not options.papers:
                graph, warnings = plausible(graph, options.units(agreement), masks)
            return Result(graph, strengths, warnings=tuple(warnings), reason=reason)

        def norms() -> FloatArray:
            return np.sqrt(problem.network.squared_norms(state.weights))

        # From parameters that are drawn by the seed.
        state, stopped = perceptrons.init(problem, options.seed), None
        while stopped is None:
            penalty = problem.schedule.at(state.round).consensus_penalty
            values = {"parameters": state.weights, "penalty": penalty}
            replies = yield Ask(consensus.PERCEPTRONS, values, so_far=lambda: result(norms()))
            parties = agreement.num_parties
            state, info = perceptrons.server_step(state, replies["parameters"], problem, parties)
            stopped = perceptrons.finished(state, info, problem)
            yield Note(info._asdict())
        if not options.refits:
            return result(norms(), stopped)
        # Root mean squares of the slopes.
        replies = yield Ask(consensus.SLOPES, {"parameters": state.weights})
        return result(np.sqrt(replies["slopes"]), stopped)

    def validate(self) -> None:
        """Check that the options fit each other."""
        self.options.check()
        super().validate()
        self.options.check_search()
        self.options.validate_perceptrons()

    def agree(self, reports: Mapping[str, TableReport]) -> Agreement:
        """Agree on the columns.

        Raises
        ------
        ConfigError
            As in the base class, or if ``scales`` names a column that there is not.
        DataError
            As in the base class.
        """
        agreement = super().agree(reports)
        listed = () if self._entries is None else tuple(one.name for one in self._entries.columns)
        self.options.check_scales((*agreement.names, *listed))
        return agreement

    @property
    def _initial_names(self) -> tuple[str, ...]:
        """W of the linear model."""
        return ("weights",) if self.options.model == "linear" else ()

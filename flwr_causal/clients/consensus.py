"""NOTEARS-ADMM (Ng & Zhang, AISTATS 2022) and 2Dbn (Chen, Ma & Yue 2024): the party's side."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from flwr_causal.clients.interventions import InterventionClient
from flwr_causal.clients.linear import SeriesClient
from flwr_causal.contract.answers import Asked, answers
from flwr_causal.core.arrays import to_square
from flwr_causal.core.consensus import admm, perceptrons
from flwr_causal.core.consensus.admm import ClientState
from flwr_causal.core.folds import num_held_out
from flwr_causal.core.interventions.local_graphs import compared
from flwr_causal.core.linear.moments import SampleMoments, data_scale
from flwr_causal.core.linear.solution import edges_above
from flwr_causal.core.nonlinear.notears_mlp import free_parameters
from flwr_causal.core.nonlinear.perceptrons import Network, SquaredLoss
from flwr_causal.core.series import personalised
from flwr_causal.core.series.design import lagged_names
from flwr_causal.data.check.report import TableReport
from flwr_causal.data.interventions import acted_on
from flwr_causal.party.noise import public_report, released
from flwr_causal.protocol import consensus
from flwr_causal.protocol.second_moments import sent_design
from flwr_causal.sources import by_party
from flwr_causal.sources.products import products_with_ones

if TYPE_CHECKING:
    from flwr_causal.core.arrays import Arrays, FloatArray
    from flwr_causal.core.privacy.release import Released
    from flwr_causal.data.check.handling import Handling
    from flwr_causal.protocol.contract import Contract


class LinearADMMClient(InterventionClient):
    """Solves the party's least-squares problem in each round and sends one d x d array.

    **What leaves the party**: :mod:`flwr_causal.protocol.consensus` declares it.

    A party that lost its memory (a restarted SuperNode) continues with a zero multiplier and the
    received W.
    """

    def last_state(self, number: int) -> ClientState | None:
        """Return the party's state after its last round; None if it has none.

        It is the state after this round if the server asks again, see :meth:`memory_at`, which
        states the argument and the error.
        """
        memory = self.memory_at(number)
        if memory is None:
            return None
        numbers = memory.numbers
        return ClientState(memory.arrays["sent"], numbers["penalty"], numbers["number"])

    def kept(self, state: ClientState) -> FloatArray:
        """Remember a state, and return the array of it that is sent."""
        self.remember({"sent": state.sent}, penalty=state.penalty, number=state.round)
        return state.sent

    @answers(consensus.ROUND)
    def round(self, asked: Asked) -> Arrays:
        """Perform one round of ADMM for every setting that is fitted in the same rounds."""
        penalty, relaxation = float(asked["penalty"]), float(asked["relaxation"])
        weights, state = asked["weights"], self.last_state(asked.number)
        if state is not None and state.round == asked.number:
            # The reply was lost: the same one again, without a second step.
            return {"weights": self.kept(state)}
        # W of the settings, problem after problem: equally many for each.
        problems = self._problems()
        share = len(weights) // len(problems)
        parts = []
        for index, problem in enumerate(problems):
            part = slice(index * share, (index + 1) * share)
            before = None if state is None else state._replace(sent=state.sent[part])
            step = admm.client_step(
                problem, before, weights[part], penalty, asked.number, relaxation
            )
            parts.append(step.sent)
        return {"weights": self.kept(ClientState(np.concatenate(parts), penalty, asked.number))}

    @answers(consensus.REFIT)
    def refit(self, asked: Asked) -> Arrays:
        """Return the sums that the refit needs."""
        return {"moments": np.where(asked["needed"] > 0, self.products() / self.num_rows, 0.0)}

    products_of_party = by_party.products_of_party

    def products_of_columns(self) -> FloatArray:
        """Return the sums of products of the m columns, without ones and mark, (folds, m, m)."""
        return sent_design(self.setup).without_mark(self.products())[:, 1:, 1:]

    @property
    def divides_by_own_rows(self) -> bool:
        """Whether the party's loss is divided by its own rows, not by those of all parties."""
        return False

    def _problems(self) -> list[admm.LocalProblem]:
        """Return the local problems: without held-out rows, where there are some; of all rows."""
        return self.once("problems", self._decompose)

    def _decompose(self) -> list[admm.LocalProblem]:
        setup = self.setup
        d = len(setup.names)
        if setup.targets:
            variance = np.ones(d) if self.options.standardize else setup.variance
            acted = acted_on(setup.targets, setup.names)
            unit = float(np.sqrt(data_scale(variance)))
            return [admm.interventional_problem(self.products(), acted, setup.num_rows, unit)]
        products = self.products_of_columns()
        # The 2Dbn paper divides a party's loss by its own rows, all others by those of all parties.
        counted = self.num_rows if self.divides_by_own_rows else setup.num_rows
        problems = [admm.local_problem(products.sum(axis=0), counted, d)]
        if len(products) == 1:
            return problems
        # Every party holds out the same share of its rows.
        n = self.num_rows
        total = round(setup.num_rows * (n - int(num_held_out(n))) / n)
        return [admm.local_problem(products[0], total, d), *problems]


class NotearsADMMClient(LinearADMMClient):
    """Solves the party's problem in each round, linear or with perceptrons.

    **What leaves the party**: :mod:`flwr_causal.protocol.consensus` declares it.
    """

    contract: ClassVar[Contract] = consensus.NOTEARS_ADMM
    options: consensus.NotearsPartyOptions

    def released_report(self, handling: Handling) -> TableReport:
        """Report what the party's release says of the table."""
        columns = public_report(self.context, self.table(), handling).columns
        names = tuple(column.name for column in columns)
        own = self._released(names)
        rows = round(own.effective_rows)
        squares = rows * np.diagonal(own.second)
        reported = tuple(
            replace(column, mean=mean, squares=square)
            for column, mean, square in zip(
                columns, own.mean.tolist(), squares.tolist(), strict=True
            )
        )
        return TableReport(rows, 0, reported, has_sums=True)

    def released_rows(self) -> int:
        """Return the number of rows that the release is worth."""
        return round(self._own_release().effective_rows)

    def products(self) -> FloatArray:
        """Return the sums of products of the rows [1, z]; with epsilon from the release."""
        if not self.private:
            return super().products()
        own, setup = self._own_release(), self.setup
        scale = np.sqrt(setup.variance) if self.options.standardize else 1.0
        places = [list(self.table().columns).index(name) for name in setup.names]
        shift = (own.mean[places] - setup.mean) / scale
        second = own.second[np.ix_(places, places)] / np.outer(scale, scale)
        return self.num_rows * products_with_ones(shift, second)[None]

    def _own_release(self) -> Released:
        """Return the release that the report was made from."""
        return self._released(tuple(map(str, self.table().columns)))

    def _released(self, names: tuple[str, ...]) -> Released:
        """Return the moments of the party's one release, all of its columns in it."""
        return released(self.context, self.table(), names, self.options)

    @answers(consensus.PERCEPTRONS)
    def perceptrons(self, asked: Asked) -> Arrays:
        """Perform one round of ADMM on the parameters of the perceptrons."""
        state = self.last_state(asked.number)
        if state is None or state.round < asked.number:
            loss = self._loss
            state = perceptrons.client_step(
                loss,
                free_parameters(loss.network, self.options.masks(self.setup.names)),
                state,
                asked["parameters"],
                float(asked["penalty"]),
                asked.number,
                max_iterations=self.options.inner_steps,
            )
        return {"parameters": self.kept(state)}

    @answers(consensus.SLOPES)
    def slopes(self, asked: Asked) -> Arrays:
        """Return the mean squares of df_j/dx_i over the party's rows."""
        return {"slopes": self._loss.squared_slopes(asked["parameters"])}

    @property
    def _loss(self) -> SquaredLoss:
        """The party's loss, prepared once a process."""
        return self.once("perceptrons", self._new_loss)

    def _new_loss(self) -> SquaredLoss:
        setup, options = self.setup, self.options
        return SquaredLoss(
            self.design(),
            Network(len(setup.names), (options.hidden,)),
            num_rows=setup.num_rows,
            device=options.device,
            precision=options.arithmetic,
        )


class TwoDBNClient(LinearADMMClient, SeriesClient):
    """Performs the rounds of NOTEARS-ADMM on the party's lagged design.

    **What leaves the party**: :mod:`flwr_causal.protocol.consensus` declares it. The
    values of id, time and phase columns never leave the party.
    """

    contract: ClassVar[Contract] = consensus.TWO_DBN
    options: consensus.TwoDBNPartyOptions

    @property
    def divides_by_own_rows(self) -> bool:
        """Whether the party's loss is divided by its own rows, as in the paper."""
        return self.options.variant == "paper"

    @answers(consensus.PERSONALISED)
    def personalised_round(self, asked: Asked) -> Arrays:
        """Solve for the party's own weights near the common ones."""
        state = self._own_state(asked.number)
        if state is None or state.round < asked.number:
            state = self._own_step(asked, state)
        self.remember({"own": state.weights}, multiplier=state.multiplier, number=asked.number)
        return {"weights": state.weights}

    @answers(consensus.OWN_NETWORKS)
    def own_network(self, asked: Asked) -> Arrays:
        """Return the party's own network, and how its rows support that and the common one."""
        state = self._own_step(asked, self._own_state(asked.number))
        none = np.zeros_like(state.weights, dtype=np.bool_)
        limits = asked["thresholds"][:, None]
        edges = edges_above(to_square(state.weights), limits, to_square(none))[:, : none.shape[1]]
        weights = np.where(edges, state.weights, 0.0)
        columns = lagged_names(self.setup.names, self.order)
        moments = SampleMoments(self.num_rows, np.zeros(len(columns)), self._own_second, columns)
        found = compared(moments, edges, weights, asked["graph"])
        return {"own-weights": weights, "support": found.support, "own-shares": found.shares}

    @property
    def _own_second(self) -> FloatArray:
        """The party's mean products of the design's columns, (m, m)."""
        second: FloatArray = self.once(
            "second", lambda: self.products_of_columns()[0] / self.num_rows
        )
        return second

    def _own_state(self, number: int) -> personalised.OwnState | None:
        """Return the party's state after its last round; None if it has none."""
        memory = self.memory_at(number)
        if memory is None:
            return None
        numbers = memory.numbers
        return personalised.OwnState(
            memory.arrays["own"], numbers["multiplier"], int(numbers["number"])
        )

    def _own_step(self, asked: Asked, state: personalised.OwnState | None) -> personalised.OwnState:
        setup = self.setup
        variance = np.ones(len(setup.names)) if self.options.standardize else setup.variance
        problem = personalised.OwnProblem(
            self._own_second / data_scale(variance),
            asked["sparsity"][:, None],
            float(asked["proximity"]),
        )
        penalty = float(asked["penalty"])
        return personalised.own_step(problem, state, asked["weights"], penalty, asked.number)

"""Consensus ADMM for linear systems (Ng & Zhang, AISTATS 2022): the party's side."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flwr_causal.clients.linear import LinearClient
from flwr_causal.core.consensus import admm
from flwr_causal.core.consensus.admm import ClientState
from flwr_causal.errors import FederationError
from flwr_causal.protocol.wire import Disclosure, Scalar

FloatArray = NDArray[np.float64]
Answer = tuple[list[NDArray[Any]], int, dict[str, Any]]


class ADMMClient(LinearClient):
    """What a party keeps of a consensus ADMM from one round to the next.

    A party that lost its memory (a restarted SuperNode) goes on with a zero multiplier and what it
    received.
    """

    def state_before(self, server_round: int) -> ClientState | None:
        """Return what the party kept; of this very round where its reply got lost.

        The server then asks again: the answer must be the same, and the multiplier must not be
        updated twice.

        Raises
        ------
        FederationError
            For a message older than the last one.
        """
        memory = self.recall()
        if memory is None:
            return None
        state = ClientState(
            memory.arrays["sent"], memory.numbers["penalty"], memory.numbers["round"]
        )
        if state.round > server_round:
            raise FederationError(
                f"A message of round {server_round} came after that of round {state.round}; "
                "it was ignored."
            )
        return state

    def reply(self, state: ClientState) -> Answer:
        """Keep the state and return what it sends, of weight 1."""
        self.remember({"sent": state.sent}, penalty=state.penalty, round=state.round)
        return [state.sent], 1, {}


class LinearADMMClient(ADMMClient):
    """Solves its own least-squares problem each round and sends one d x d array.

    **What leaves the party**

    - ``weights`` in every round: Z_k = B_k + beta_k / rho_2 (eqs. 7 and 10; B_k over-relaxed by the
      fast schedule), d x d, to be averaged with weight 1. The first one determines the party's
      second moments.
    - ``moments`` in the last exchange, if the strategy refits: X_k^T X_k / n_k among each variable
      and its parents in the final graph and zero elsewhere, d x d, with the weight n_k.
    """

    discloses: ClassVar[tuple[Disclosure, ...]] = (
        Disclosure("weights", "B_k + beta_k / rho_2", ("*", "m", "d")),
        Disclosure("moments", "X_k^T X_k / n_k within families", ("*", "m", "m"), phase="fit"),
    )

    def fit(self, parameters: list[NDArray[Any]], config: dict[str, Scalar]) -> Answer:
        """Do one round, or return the sums that the refit needs."""
        (received,) = parameters
        if config["phase"] == "fit":
            return self._moments(received)
        penalty, relaxation = float(config["penalty"]), float(config["relaxation"])
        return self._round(received, penalty, relaxation, int(config["round"]))

    def _round(
        self, weights: FloatArray, penalty: float, relaxation: float, server_round: int
    ) -> Answer:
        state = self.state_before(server_round)
        if state is not None and state.round == server_round:
            return self.reply(state)
        problems = self._problems()
        share = len(weights) // len(problems)
        parts = []
        for index, problem in enumerate(problems):
            part = slice(index * share, (index + 1) * share)
            before = None if state is None else state._replace(sent=state.sent[part])
            step = admm.client_step(
                problem, before, weights[part], penalty, server_round, relaxation
            )
            parts.append(step.sent)
        after = ClientState(np.concatenate(parts), penalty, server_round)
        return self.reply(after)

    def _problems(self) -> list[admm.LocalProblem]:
        """Return the local problem of all rows, before it that without the held-out ones."""
        return self.once("problems", self._decompose)

    def _decompose(self) -> list[admm.LocalProblem]:
        design, setup = self.design(), self.setup
        folds = self.folds(design)
        d = len(setup.names)
        problems = [admm.local_problem(design, setup.num_rows, d)]
        if len(folds) == 1:
            return problems
        # The rows that are held out everywhere shrink the total by the same share.
        total = round(setup.num_rows * len(folds[0]) / len(design))
        return [admm.local_problem(folds[0], total, d), *problems]

    def _moments(self, needed: FloatArray) -> Answer:
        design = self.design()
        seconds = np.stack([fold.T @ fold / len(design) for fold in self.folds(design)])
        return [np.where(needed > 0, seconds, 0.0)], len(design), {}

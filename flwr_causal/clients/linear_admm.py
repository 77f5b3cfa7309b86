"""Consensus ADMM for linear systems (Ng & Zhang, AISTATS 2022): the party's side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.clients.base import Asked, answers
from flwr_causal.clients.linear import LinearClient
from flwr_causal.core.consensus import admm
from flwr_causal.core.consensus.admm import ClientState
from flwr_causal.errors import FederationError
from flwr_causal.protocol import consensus

if TYPE_CHECKING:
    from flwr_causal.core.arrays import Arrays, FloatArray


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

    def reply(self, state: ClientState) -> FloatArray:
        """Keep the state and return what it sends."""
        self.remember({"sent": state.sent}, penalty=state.penalty, round=state.round)
        return state.sent


class LinearADMMClient(ADMMClient):
    """Solves its own least-squares problem each round and sends one d x d array.

    **What leaves the party**

    - ``weights`` in every round: Z_k = B_k + beta_k / rho_2 (eqs. 7 and 10; B_k over-relaxed by the
      fast schedule), d x d, to be averaged with weight 1. The first one determines the party's
      second moments.
    - ``moments`` in the last exchange, if the strategy refits: X_k^T X_k / n_k among each variable
      and its parents in the final graph and zero elsewhere, d x d, with the weight n_k.
    """

    @answers(consensus.ROUND)
    def round(self, asked: Asked) -> Arrays:
        """Do one round of ADMM for every setting that runs side by side."""
        penalty, relaxation = float(asked["penalty"]), float(asked["relaxation"])
        weights, state = asked["weights"], self.state_before(asked.number)
        if state is not None and state.round == asked.number:
            return {"weights": self.reply(state)}
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
        return {"weights": self.reply(ClientState(np.concatenate(parts), penalty, asked.number))}

    @answers(consensus.REFIT)
    def refit(self, asked: Asked) -> Arrays:
        """Return the second moments that the refit needs."""
        design = self.design()
        seconds = np.stack([fold.T @ fold / len(design) for fold in self.folds(design)])
        return {"moments": np.where(asked["moments"] > 0, seconds, 0.0)}

    def count_rows(self) -> int:
        """Count the rows of the design."""
        return len(self.design())

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

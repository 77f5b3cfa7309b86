"""NOTEARS-ADMM (Ng & Zhang, AISTATS 2022): the party's side."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flwr_causal.clients.cache import cached
from flwr_causal.clients.linear import LinearClient
from flwr_causal.core import admm
from flwr_causal.errors import FederationError
from flwr_causal.wire import Disclosure, Scalar

FloatArray = NDArray[np.float64]


class NotearsADMMClient(LinearClient):
    """Solves its own least-squares problem each round and sends one d x d array.

    **What leaves the party**

    - ``weights`` in every round: Z_k = B_k + beta_k / rho_2 (eqs. 7 and 10; B_k over-relaxed by the
      fast schedule), d x d, to be averaged with weight 1. The first one determines the party's
      second moments.
    - ``moments`` in the last exchange, if the strategy refits: X_k^T X_k / n_k among each variable
      and its parents in the final graph and zero elsewhere, d x d, with the weight n_k.

    A party that lost its memory (a restarted SuperNode) goes on with a zero multiplier and the W
    that it received.
    """

    discloses: ClassVar[tuple[Disclosure, ...]] = (
        Disclosure("weights", "B_k + beta_k / rho_2", ("*", "m", "d")),
        Disclosure("moments", "X_k^T X_k / n_k within families", ("*", "m", "m"), phase="fit"),
    )

    def fit(
        self, parameters: list[NDArray[Any]], config: dict[str, Scalar]
    ) -> tuple[list[NDArray[Any]], int, dict[str, Any]]:
        """Do one round, or return the sums that the refit needs."""
        (received,) = parameters
        if config["phase"] == "fit":
            return self._moments(received)
        penalty, relaxation = float(config["penalty"]), float(config["relaxation"])
        return self._round(received, penalty, relaxation, int(config["round"]))

    def _round(
        self, weights: FloatArray, penalty: float, relaxation: float, server_round: int
    ) -> tuple[list[NDArray[Any]], int, dict[str, Any]]:
        memory = self.recall()
        state = None
        if memory is not None:
            state = admm.ClientState(
                memory.arrays["sent"], memory.numbers["penalty"], memory.numbers["round"]
            )
            if state.round == server_round:
                # The reply got lost and the server asks again: the answer is the same, and the
                # multiplier must not be updated twice.
                return [state.sent], 1, {}
            if state.round > server_round:
                raise FederationError(
                    f"A message of round {server_round} came after that of round {state.round}; "
                    "it was ignored."
                )
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
        sent = np.concatenate(parts)
        self.remember({"sent": sent}, penalty=penalty, round=server_round)
        return [sent], 1, {}

    def _problems(self) -> list[admm.LocalProblem]:
        """Return the local problem of all rows, before it that without the held-out ones."""
        return cached(self.context, f"problems {self.setup.exchange}", self._decompose)

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

    def _moments(self, needed: FloatArray) -> tuple[list[NDArray[Any]], int, dict[str, Any]]:
        design = self.design()
        seconds = np.stack([fold.T @ fold / len(design) for fold in self.folds(design)])
        return [np.where(needed > 0, seconds, 0.0)], len(design), {}

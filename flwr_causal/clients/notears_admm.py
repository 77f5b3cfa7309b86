"""NOTEARS-ADMM and NOTEARS-MLP-ADMM (Ng & Zhang, AISTATS 2022): the party's side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from flwr_causal.clients.linear_admm import LinearADMMClient
from flwr_causal.core.consensus import perceptrons as neural_admm
from flwr_causal.core.nonlinear.notears_mlp import free_parameters
from flwr_causal.core.nonlinear.perceptrons import Network, SquaredLoss
from flwr_causal.protocol.wire import Disclosure, Scalar

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flwr_causal.clients.linear_admm import Answer


class NotearsADMMClient(LinearADMMClient):
    """Solves its own part of the problem each round, linear or with perceptrons.

    **What leaves the party** with ``model="linear"``: ``weights`` in every round and ``moments`` in
    the last exchange, as :class:`~flwr_causal.clients.linear_admm.LinearADMMClient` says. With
    ``model="mlp"``:

    - ``parameters`` in every round: theta_k + beta_k / rho_2, all parameters of the d perceptrons,
      to be averaged with weight 1.
    - ``slopes`` in the last exchange, if the strategy asks for strengths: the mean squares of
      df_j/dx_i over the party's rows, d x d, with the weight n_k.
    """

    discloses: ClassVar[tuple[Disclosure, ...]] = (
        *LinearADMMClient.discloses,
        Disclosure("parameters", "theta_k + beta_k / rho_2", ("*",), phase="perceptrons"),
        Disclosure("slopes", "mean square of df_j/dx_i", ("d", "d"), phase="slopes"),
    )

    def fit(self, parameters: list[NDArray[Any]], config: dict[str, Scalar]) -> Answer:
        """Do one round, or return what the last exchange asks for."""
        if config["phase"] not in ("perceptrons", "slopes"):
            return super().fit(parameters, config)
        (theta,) = parameters
        loss = self.once("perceptrons", self._loss)
        if config["phase"] == "slopes":
            return [loss.squared_slopes(theta)], loss.own_rows, {}
        server_round = int(config["round"])
        state = self.state_before(server_round)
        if state is None or state.round < server_round:
            state = neural_admm.client_step(
                loss,
                free_parameters(loss.network, self.masks),
                state,
                theta,
                float(config["penalty"]),
                server_round,
                max_iterations=int(self.setup.options["inner-steps"]),
            )
        return self.reply(state)

    def _loss(self) -> SquaredLoss:
        setup, options = self.setup, self.setup.options
        return SquaredLoss(
            self.design(),
            Network(len(setup.names), (int(options["hidden"]),)),
            num_rows=setup.num_rows,
            device=str(options["device"]),
            precision=str(options["arithmetic"]),
        )

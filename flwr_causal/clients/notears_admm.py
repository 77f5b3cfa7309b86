"""NOTEARS-ADMM and NOTEARS-MLP-ADMM (Ng & Zhang, AISTATS 2022): the party's side."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from flwr_causal.clients.base import Asked, answers
from flwr_causal.clients.linear_admm import LinearADMMClient
from flwr_causal.core.consensus import perceptrons
from flwr_causal.core.nonlinear.notears_mlp import free_parameters
from flwr_causal.core.nonlinear.perceptrons import Network, SquaredLoss
from flwr_causal.protocol import consensus

if TYPE_CHECKING:
    from flwr_causal.core.arrays import Arrays
    from flwr_causal.protocol.exchange import Contract


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

    contract: ClassVar[Contract] = consensus.NOTEARS_ADMM

    @answers(consensus.PERCEPTRONS)
    def perceptrons(self, asked: Asked) -> Arrays:
        """Do one round of ADMM on the parameters of the perceptrons."""
        state = self.state_before(asked.number)
        if state is None or state.round < asked.number:
            loss = self._loss
            state = perceptrons.client_step(
                loss,
                free_parameters(loss.network, self.masks),
                state,
                asked["parameters"],
                float(asked["penalty"]),
                asked.number,
                max_iterations=int(self.setup.options["inner-steps"]),
            )
        return {"parameters": self.reply(state)}

    @answers(consensus.SLOPES)
    def slopes(self, asked: Asked) -> Arrays:
        """Return the mean squares of df_j/dx_i over the party's rows."""
        return {"slopes": self._loss.squared_slopes(asked["parameters"])}

    @property
    def _loss(self) -> SquaredLoss:
        """The party's loss, prepared once a process."""
        return self.once("perceptrons", self._new_loss)

    def _new_loss(self) -> SquaredLoss:
        setup, options = self.setup, self.setup.options
        return SquaredLoss(
            self.design(),
            Network(len(setup.names), (int(options["hidden"]),)),
            num_rows=setup.num_rows,
            device=str(options["device"]),
            precision=str(options["arithmetic"]),
        )

"""2Dbn (Chen, Ma & Yue 2024): the party's side."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from flwr_causal.clients.linear_admm import LinearADMMClient
from flwr_causal.clients.series import SeriesClient
from flwr_causal.protocol.consensus import TWO_DBN

if TYPE_CHECKING:
    from flwr_causal.protocol.exchange import Contract


class TwoDBNClient(SeriesClient, LinearADMMClient):
    """Solves its own least-squares problem on rows with lags; the iteration is NOTEARS-ADMM's.

    **What leaves the party**: the same arrays as with NOTEARS-ADMM
    (:class:`~flwr_causal.clients.linear_admm.LinearADMMClient`), m x d and m x m with
    m = d (1 + p): ``weights`` in every round, ``moments`` in the last exchange. The values of id,
    time and phase columns never leave it.
    """

    contract: ClassVar[Contract] = TWO_DBN

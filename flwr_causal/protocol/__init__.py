"""What parties and server say to each other: the contract, the door, and one file a method."""

from flwr_causal.contract.exchange import Disclosure, Exchange, Sent
from flwr_causal.contract.when import When
from flwr_causal.protocol.contract import Contract
from flwr_causal.protocol.options import PartyOptions, PrivatePartyOptions
from flwr_causal.protocol.replies import Replies

__all__ = [
    "Contract",
    "Disclosure",
    "Exchange",
    "PartyOptions",
    "PrivatePartyOptions",
    "Replies",
    "Sent",
    "When",
]

"""The ClientApp that simulated nodes and SuperNodes load."""

from flwr_causal.clients import client_app
from flwr_causal.methods import CLIENTS
from flwr_causal.sources import source_of

app = client_app(CLIENTS, source_of)

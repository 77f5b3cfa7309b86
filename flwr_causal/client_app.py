"""The ClientApp that simulated nodes and SuperNodes load."""

from flwr_causal.lazy import uncollected

with uncollected():
    from flwr_causal.app.methods import CLIENTS
    from flwr_causal.app.sources import source_of
    from flwr_causal.clients.bridge import client_app

app = client_app(CLIENTS, source_of)

"""The ServerApp that ``flwr run`` and a SuperLink load."""

from flwr_causal.lazy import uncollected

with uncollected():
    from flwr_causal.app.server import server_app

app = server_app()

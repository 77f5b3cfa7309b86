"""FedPC: the server's side."""

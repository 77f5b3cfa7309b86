"""FedGES: the server's side."""

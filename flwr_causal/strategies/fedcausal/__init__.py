"""FedCausal: the server's side."""

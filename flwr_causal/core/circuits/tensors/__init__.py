"""Random and Einsum networks in torch, trained by expectation maximisation."""

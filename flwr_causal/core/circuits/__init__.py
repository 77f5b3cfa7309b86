"""Probabilistic circuits: distributions that answer marginals and conditionals exactly."""

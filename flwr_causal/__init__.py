"""Federated causal discovery for Flower."""

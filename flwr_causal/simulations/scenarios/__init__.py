"""Experiments as files: data, split, methods, baselines, metrics and the paper's own figures.

``flwr-causal reproduce`` runs them; docs/reproduce.md says how, and how a scenario is written.
"""

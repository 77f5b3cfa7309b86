"""Causal graphs, background knowledge, metrics and drawings."""

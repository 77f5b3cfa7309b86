"""Greedy equivalence search, and the fusion of graphs."""

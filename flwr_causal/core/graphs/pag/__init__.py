"""Graphs with hidden common causes: maximal ancestral graphs, and partial ones."""

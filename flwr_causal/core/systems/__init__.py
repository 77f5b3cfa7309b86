"""Fitted systems: what is asked of a graph and the moments that it was found in."""

"""Causal graphs: what they are, what is known of them, how they compare, how they are drawn."""

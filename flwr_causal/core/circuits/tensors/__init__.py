"""Einsum networks in torch: layout, layers, evaluation, and the leaf that the engine sees."""

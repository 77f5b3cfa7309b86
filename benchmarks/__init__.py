"""Experiments of the papers and harder worlds, other programs, speed: what a checkout measures.

The package ``flwr_causal`` does not need it, and no wheel has it. Its commands:
``python -m benchmarks``.
"""

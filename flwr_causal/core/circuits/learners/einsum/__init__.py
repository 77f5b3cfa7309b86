"""Einsum networks: tensorised circuits learned by EM, from rows or by sums over them."""

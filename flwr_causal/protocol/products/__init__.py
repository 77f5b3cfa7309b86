"""Products of columns that different parties hold: the parties' tables stay masked.

docs/security_protocol.md#different-columns has the algebra and who learns what. ``plan`` says which
party gives which product, ``matrices`` computes modulo 2^64, ``tables`` masks and seals,
``row_ids`` matches rows by hashes of their ids.
"""

"""Secure sums: parties add masks to what they send, and the server learns the sum alone.

docs/security_protocol.md describes the protocol, docs/security.md what it protects. Randomness
comes from the operating system only, never from a seed.
"""

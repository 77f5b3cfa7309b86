"""Secure sums: parties add masks to what they send, and the server learns the sum alone.

`party` and `server` have the two sides, the other modules what both know.
docs/security_protocol.md describes the protocol, docs/security.md what it protects. Randomness
comes from the operating system only, never from a seed.
"""

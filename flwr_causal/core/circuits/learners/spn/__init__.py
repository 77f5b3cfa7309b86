"""LearnSPN for mixed tables, and expectation maximisation for any circuit."""

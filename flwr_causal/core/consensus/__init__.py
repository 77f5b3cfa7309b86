"""Consensus ADMM: the party's step, the server's step, projections, schedules."""

"""Simulated data with a known graph."""

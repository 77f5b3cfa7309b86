"""Circuits of several parties composed to one, which may stay with the parties."""

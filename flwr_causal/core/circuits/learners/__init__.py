"""Learners of circuits, one room each, and what trainings by sums over rows share."""

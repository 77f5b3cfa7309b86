"""Nonlinear structure: perceptrons and additive bases."""

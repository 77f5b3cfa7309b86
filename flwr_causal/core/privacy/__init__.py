"""Differential privacy of rows: calibration, the discrete Gaussian, releases of moments."""

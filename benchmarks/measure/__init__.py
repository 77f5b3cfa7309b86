"""Measurements of time, memory, traffic and calibration."""

"""Readers of the data sets of the papers, each in the form in which it is published."""

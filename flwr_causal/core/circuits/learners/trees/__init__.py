"""Mixtures of Chow-Liu trees over categories and intervals, trained by sums of counts."""

"""Figures of the papers' public code on the cases of cases.py, seeds 0-4, measured beforehand.

NOTEARS-ADMM: the authors' program with its own settings, run
on 2-core machines, CPU seconds of one core. It runs 197 rounds whatever happens. SHD counts a
reversed edge once; errors are standard errors of the mean over the seeds. Three of the 22 settings
(d = 50 with 4, 16 and 32 parties) were not measured.

NOTEARS: Zheng et al.'s program, lambda_1 = 0.1, threshold 0.3, on the
pooled rows; seeds 0-4, but 0-2 for d = 50 and 0 only for d = 100.
"""

from typing import NamedTuple


class Figure(NamedTuple):
    shd: float  # mean over the seeds
    error: float  # standard error of that mean; NaN for one seed
    cpu_seconds: float
    num_seeds: int


ROUNDS = 197

# (d, n, K)
NOTEARS_ADMM = {
    (10, 30, 10): Figure(6.2, 1.66, 12.3, 5),
    (10, 256, 2): Figure(2.2, 1.02, 7.4, 5),
    (10, 256, 4): Figure(1.4, 0.93, 9.1, 5),
    (10, 256, 8): Figure(1.4, 0.68, 11.3, 5),
    (10, 256, 16): Figure(1.6, 0.51, 17.4, 5),
    (10, 256, 32): Figure(2.2, 0.58, 28.2, 5),
    (10, 256, 64): Figure(2.8, 0.37, 45.7, 5),
    (20, 60, 10): Figure(10.0, 1.34, 24.1, 5),
    (20, 256, 2): Figure(3.8, 0.37, 16.5, 5),
    (20, 256, 4): Figure(3.8, 1.02, 17.1, 5),
    (20, 256, 8): Figure(3.8, 0.58, 21.7, 5),
    (20, 256, 16): Figure(3.8, 0.37, 30.9, 5),
    (20, 256, 32): Figure(5.0, 0.45, 47.9, 5),
    (20, 256, 64): Figure(5.8, 0.80, 69.7, 5),
    (50, 150, 10): Figure(8.8, 3.09, 62.5, 5),
    (50, 256, 2): Figure(8.4, 1.81, 43.7, 5),
    (50, 256, 8): Figure(5.6, 1.86, 62.9, 5),
    (50, 256, 64): Figure(25.2, 2.20, 153.1, 5),
    (100, 300, 10): Figure(15.2, 2.71, 122.0, 5),
}

# (d, n)
POOLED_NOTEARS = {
    (10, 30): Figure(4.00, 0.63, 0.4, 5),
    (10, 256): Figure(0.80, 0.49, 0.2, 5),
    (20, 60): Figure(2.20, 0.37, 2.8, 5),
    (20, 256): Figure(1.20, 0.97, 1.0, 5),
    (50, 150): Figure(1.67, 0.88, 17.0, 3),
    (50, 256): Figure(2.67, 0.67, 10.9, 3),
    (100, 300): Figure(1.00, float("nan"), 96.6, 1),
}

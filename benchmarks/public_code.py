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


# Perceptrons, 512 rows, seeds 0-2: NOTEARS-MLP-ADMM by the authors' program, 176 rounds, (d, K);
# NOTEARS-MLP (Zheng et al. 2020) on the pooled rows, by d.
NOTEARS_MLP_ADMM = {
    (10, 2): Figure(11.7, 1.20, 23.6, 3),
    (10, 8): Figure(13.7, 2.85, 33.7, 3),
    (20, 2): Figure(19.3, 2.19, 46.0, 3),
    (20, 8): Figure(14.7, 1.20, 67.1, 3),
}
POOLED_NOTEARS_MLP = {10: Figure(3.3, 0.67, 44.8, 3), 20: Figure(5.7, 1.20, 198.8, 3)}


class DiscreteFigure(NamedTuple):
    smhd: int  # of the last round
    best_smhd: int  # of the best round
    rounds: int
    edges: int
    cpu_seconds: float  # of the process, with the start of Java
    finished: bool = True


# FedGES: the authors' program (Java), sample 0 of each network, 5000 rows, BDeu with an equivalent
# sample size of 1, 10 edges a round. (network, K, fusion); Union with 20 parties was stopped after
# three rounds.
FEDGES = {
    ("alarm", 5, "c50"): DiscreteFigure(11, 9, 8, 46, 6.22),
    ("alarm", 10, "c50"): DiscreteFigure(8, 8, 13, 44, 10.94),
    ("alarm", 20, "c50"): DiscreteFigure(10, 10, 7, 46, 16.78),
    ("alarm", 10, "c25"): DiscreteFigure(39, 24, 4, 72, 7.38),
    ("alarm", 20, "c25"): DiscreteFigure(21, 16, 5, 55, 13.71),
    ("alarm", 5, "union"): DiscreteFigure(30, 25, 6, 65, 6.09),
    ("alarm", 10, "union"): DiscreteFigure(93, 16, 5, 102, 12.23),
    ("alarm", 20, "union"): DiscreteFigure(303, 42, 3, 278, 147.56, finished=False),
    ("hailfinder", 5, "c50"): DiscreteFigure(66, 66, 6, 66, 13.73),
    ("hailfinder", 10, "c50"): DiscreteFigure(75, 74, 6, 59, 20.31),
    ("hailfinder", 10, "c25"): DiscreteFigure(83, 74, 5, 75, 21.63),
    ("hailfinder", 5, "union"): DiscreteFigure(72, 64, 5, 77, 13.16),
    ("hailfinder", 10, "union"): DiscreteFigure(75, 71, 8, 74, 33.66),
}


class PooledFigure(NamedTuple):
    smhd: int
    edges: int
    bdeu: float  # of all rows
    cpu_seconds: float  # of the search alone


# Searches on all 5000 rows of the same samples, the same score. (network, program); "authors" is
# their program with one party.
POOLED_DISCRETE = {
    ("alarm", "authors"): PooledFigure(13, 45, -55298.0, 1.63),
    ("hailfinder", "authors"): PooledFigure(57, 66, -251307.9, 2.92),
    ("win95pts", "authors"): PooledFigure(154, 159, -45856.6, 7.91),
    ("alarm", "bnlearn, hc"): PooledFigure(18, 52, -53905.8, 0.23),
    ("andes", "bnlearn, hc"): PooledFigure(185, 354, -468066.1, 6.25),
    ("hailfinder", "bnlearn, hc"): PooledFigure(46, 65, -251371.2, 0.79),
    ("pigs", "bnlearn, hc"): PooledFigure(5, 626, -1664116.7, 34.52),
    ("win95pts", "bnlearn, hc"): PooledFigure(122, 167, -45645.9, 1.39),
}

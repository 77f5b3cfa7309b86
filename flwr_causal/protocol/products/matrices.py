"""Matrices of words modulo 2^64: numbers as multiples of a step, and products of columns.

A centred and scaled value x is the whole number round(x 2^f), the fraction bits f being the most
for which no sum of products over the rows of all parties can leave the range of a word
(:func:`fraction_bits`). A product of columns is then a multiple of 2^-2f.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.threads import single_threaded
from flwr_causal.errors import DataError
from flwr_causal.secure.ring import RESAMPLED_ROOM

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flwr_causal.core.arrays import FloatArray, IntArray

    Words = NDArray[np.uint64]

# A sum has a sign.
_SUM_BITS = 62
# Words are cut into three limbs. Products of two limbs of so many rows add up exactly in a float64.
_LIMB_BITS, _LIMBS, _FLOAT_BITS = 22, 3, 53
_ROWS = 2 ** (_FLOAT_BITS - 2 * _LIMB_BITS)
_LIMB = np.uint64(2**_LIMB_BITS - 1)


def fraction_bits(rows: int, parties: int) -> int:
    """Return f, the bits behind the point of a value, so that no sum of products overflows.

    The squares of a scaled column add up to at most the rows of all parties; at each party those of
    rows that are drawn again, and those of lags, which have values from before the first row, to
    8 times as much (:func:`check_size` refuses more). By Cauchy and Schwarz no sum of products of
    two columns is larger.

    Parameters
    ----------
    rows : int
        Of all parties, rows that several parties have counted as often.
    parties : int
    """
    return (_SUM_BITS - int(RESAMPLED_ROOM * rows * parties).bit_length()) // 2


def fixed(values: FloatArray, bits: int) -> Words:
    """Return centred and scaled values as words, multiples of 2^-bits."""
    return np.rint(np.ldexp(values, bits)).astype(np.int64).view(np.uint64)


def as_floats(sums: NDArray[np.int64], bits: int) -> FloatArray:
    """Return multiples of 2^-bits; sums of products are multiples of the square of the step."""
    return np.ldexp(sums.astype(np.float64), -bits)


def check_size(values: FloatArray, weights: IntArray, rows: int) -> None:
    """Check that sums of products of a party's values fit into a word, see :func:`fraction_bits`.

    Parameters
    ----------
    values : ndarray of shape (n, d)
        Centred and scaled.
    weights : ndarray of int64, shape (weightings, n)
    rows : int
        Of all parties.

    Raises
    ------
    DataError
        If they may not.
    """
    # Not "larger": a square that is no number would not be.
    if not (weights @ values**2 <= RESAMPLED_ROOM * rows).all():
        raise DataError(
            "a column has values so far from its mean that sums of products overflow: look for "
            "outliers, among the first steps of series, too, or run without replicates"
        )


def weighted_products(left: Words, weights: IntArray, right: Words) -> Words:
    """Return the sums ``left^T W right`` modulo 2^64, one for each weighting of the rows.

    Words are cut into three limbs of 22 bits, whose products float64 adds up exactly over 512 rows:
    six matrix products of floats in place of one of words, which no BLAS has.

    Parameters
    ----------
    left, right : ndarray of uint64, shapes (n, p) and (n, q)
    weights : ndarray of int64, shape (weightings, n)
        The diagonal of each W.

    Returns
    -------
    ndarray of uint64, shape (weightings, p, q)
    """
    total = np.zeros((len(weights), left.shape[1], right.shape[1]), dtype=np.uint64)
    with single_threaded():
        for start in range(0, len(left), _ROWS):
            rows = slice(start, start + _ROWS)
            others = _limbs(right[rows])
            for own, row_weights in zip(total, weights[:, rows].astype(np.uint64), strict=True):
                limbs = _limbs(left[rows] * row_weights[:, None])
                # Higher limbs are multiples of 2^64.
                for i, j in product(range(_LIMBS), repeat=2):
                    if i + j < _LIMBS:
                        sums = (limbs[i].T @ others[j]).astype(np.uint64)
                        own += sums << np.uint64((i + j) * _LIMB_BITS)
    return total


def _limbs(words: Words) -> list[FloatArray]:
    return [
        ((words >> np.uint64(k * _LIMB_BITS)) & _LIMB).astype(np.float64) for k in range(_LIMBS)
    ]

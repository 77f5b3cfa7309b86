"""Means and squares of numbers whose Yeo-Johnson transforms are normal or t distributed.

Beyond its reach the transform is a line, where the partial moments have closed forms. Within, the
integral runs over the signed logarithm of the number, in which the transform is an exponential, in
two pieces that meet at 0, where the transform's second derivative jumps. Gauss-Legendre points are
spread by a hyperbolic sine around the peak, so that narrow and heavy-tailed densities are met by
enough of them.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, ndtr, stdtr

from flwr_causal.core.circuits.leaves import yeo_johnson

FloatArray = NDArray[np.float64]

#: Points of a piece.
NUM_POINTS = 96
#: A normal density beyond this many standard deviations is below rounding.
FAR = 12.0


def transformed_moments(
    means: FloatArray, sds: FloatArray, dof: float, powers: FloatArray, reach: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return E[u] and E[u^2] of numbers with transforms of given means and standard deviations.

    Parameters
    ----------
    means, sds : ndarray of float64, shape (n, m)
        Of the transforms.
    dof : float
        Degrees of freedom, above 2; inf for normal transforms.
    powers, reach : ndarray of float64, shape (m,)

    Returns
    -------
    first, second : ndarray of float64, shape (n, m)
    """
    scale = sds if math.isinf(dof) else sds * math.sqrt((dof - 2) / dof)
    limit = np.log1p(reach)
    first, second = np.zeros(means.shape), np.zeros(means.shape)
    for side in (-1.0, 1.0):
        # Mirrored, the lower line is an upper one, and the transform's power p becomes 2 - p.
        own = powers if side > 0 else 2.0 - powers
        bound = yeo_johnson.of_signed_log(limit, own)
        stretch = scale * np.exp(-(own - 1.0) * limit)
        cut = (bound - side * means) / scale
        mass, once, twice = _upper_parts(cut, dof)
        start = reach - stretch * cut  # the number is start + stretch z on the line
        first += side * (start * mass + stretch * once)
        second += start**2 * mass + 2 * start * stretch * once + stretch**2 * twice
        piece = _piece(side * means, scale, dof, own, limit)
        first += side * piece[0]
        second += piece[1]
    return first, second


def _piece(
    means: FloatArray, scale: FloatArray, dof: float, powers: FloatArray, limit: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the parts of E[u] and E[u^2] from the numbers between 0 and the reach."""
    reach = np.expm1(limit)
    centre = yeo_johnson.signed_log(yeo_johnson.inverse(means, powers, reach))
    centre = np.clip(centre, 0.0, limit)
    width = np.clip(scale * np.exp(-powers * centre), 1e-12, 1.0)
    low, high = np.zeros(means.shape), np.broadcast_to(limit, means.shape)
    if math.isinf(dof):
        far = [yeo_johnson.inverse(means + k * FAR * scale, powers, reach) for k in (-1, 1)]
        low, high = (np.clip(yeo_johnson.signed_log(one), 0.0, limit) for one in far)
    start, end = np.arcsinh((low - centre) / width), np.arcsinh((high - centre) / width)
    points, weights = np.polynomial.legendre.leggauss(NUM_POINTS)
    first, second = np.zeros(means.shape), np.zeros(means.shape)
    for point, weight in zip(points.tolist(), weights.tolist(), strict=True):
        place = 0.5 * (start + end) + 0.5 * (end - start) * point
        logs = np.maximum(centre + width * np.sinh(place), 0.0)
        standard = (yeo_johnson.of_signed_log(logs, powers) - means) / scale
        slope = np.exp(powers * logs) / scale
        step = weight * 0.5 * (end - start) * width * np.cosh(place)
        mass = _density(standard, dof) * slope * step
        number = np.expm1(logs)
        first += number * mass
        second += number**2 * mass
    return first, second


def _density(standard: FloatArray, dof: float) -> FloatArray:
    """Density of the standard normal or t distribution."""
    if math.isinf(dof):
        return np.asarray(np.exp(-0.5 * standard**2) / math.sqrt(2 * math.pi))
    constant = gammaln((dof + 1) / 2) - gammaln(dof / 2) - 0.5 * math.log(dof * math.pi)
    return np.asarray(np.exp(constant - 0.5 * (dof + 1) * np.log1p(standard**2 / dof)))


def _upper_parts(cut: FloatArray, dof: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the integrals of 1, z and z^2 times the standard density from a cut to infinity."""
    density = _density(cut, dof)
    if math.isinf(dof):
        mass = np.asarray(ndtr(-cut), dtype=np.float64)
        return mass, density, mass + cut * density
    mass = np.asarray(stdtr(dof, -cut), dtype=np.float64)
    # z^2 f(z) is the density of a t distribution with two degrees of freedom less, less f itself.
    fewer = np.asarray(stdtr(dof - 2, -cut * math.sqrt((dof - 2) / dof)), dtype=np.float64)
    twice = dof * ((dof - 1) / (dof - 2) * fewer - mass)
    return mass, density * (dof + cut**2) / (dof - 1), twice

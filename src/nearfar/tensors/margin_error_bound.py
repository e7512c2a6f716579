"""Margin-error bound of support tensor machines."""

from __future__ import annotations

import math


def margin_error_bound(
    nu: float, rho: float, R: float, Lambda: float, N: int, delta: float, lam: float = 1.0
) -> float:
    r"""Return an upper bound on the error rate for new samples, up to an unknown constant.

    With probability :math:`1 - \delta` over the N training samples, the error rate is at most

    .. math:: \nu + \sqrt{\frac\lambda N
        \Bigl(\frac{R^2 \Lambda^2}{\rho^2} \ln^2 N + \ln\frac1\delta\Bigr)}

    where :math:`\|W\| \le \Lambda`, :math:`\|X\| \le R`, and nu is the fraction of training samples
    with a margin below :math:`\rho/\Lambda`.

    The bound is the one of the support vector machine, which also holds for weight tensors of low
    rank. It therefore shows no gain from the tensor form. Its absolute value has no meaning, since
    :math:`\lambda` is an unspecified universal constant. Use the bound only for comparisons.

    Parameters
    ----------
    nu : float
        Fraction of margin errors, from 0 to 1.
    rho : float
        Margin, a positive number.
    R, Lambda : float
        Upper bound R on the norm of a sample, and upper bound Lambda on the norm of the weight
        tensor.
    N : int
        Number of training samples.
    delta : float
        Probability that the bound does not hold, a positive number up to 1.
    lam : float, default=1.0
        Universal constant :math:`\lambda`, whose value is unknown.

    Returns
    -------
    float
        The bound. Values above 1 carry no information.

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006,
       theorem 4.2.

    Examples
    --------
    >>> from nearfar.tensors import margin_error_bound
    >>> round(margin_error_bound(0.1, rho=1.0, R=1.0, Lambda=1.0, N=10_000, delta=0.05), 3)
    0.194
    """
    conditions = {
        "nu must be from 0 to 1": 0 <= nu <= 1,
        "rho must be above 0": rho > 0,
        "R must be at least 0": R >= 0,
        "Lambda must be at least 0": Lambda >= 0,
        "N must be at least 1": N >= 1,
        "delta must be above 0 and at most 1": 0 < delta <= 1,
        "lam must be above 0": lam > 0,
    }
    for condition, is_met in conditions.items():
        if not is_met:
            arguments = {"nu": nu, "rho": rho, "R": R, "Lambda": Lambda, "N": N, "delta": delta}
            value = arguments.get(condition.split()[0], lam)
            raise ValueError(f"margin_error_bound: {condition}; got {value!r}.")
    capacity = (R * Lambda / rho * math.log(N)) ** 2
    return nu + math.sqrt(lam / N * (capacity + math.log(1 / delta)))

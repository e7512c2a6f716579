"""The confidence term of the VC bound."""

from __future__ import annotations

import math

from nearfar.parameters import check_parameter, integer, real


def vc_confidence(n: int, h: int, eta: float) -> float:
    r"""Return the VC bound on how much the risk of a classifier exceeds its training error.

    With probability :math:`1 - \eta`, the risk is :math:`R \le R_{emp} + Conf` with

    .. math:: Conf = \sqrt{\frac{h (\log(2n/h) + 1) - \log(\eta/4)}{n}}

    for a family of classifiers of VC dimension h. A value above 1, which is common, gives no
    information about the risk. Use it only to compare families.

    Parameters
    ----------
    n : int
        Number of training rows.
    h : int
        VC dimension, at most 2n.
    eta : float
        Probability η that the bound does not hold, above 0 and at most 1.

    Returns
    -------
    float

    References
    ----------
    .. [1] V. Vapnik, "The Nature of Statistical Learning Theory", 1995,
       chapter 3.

    Examples
    --------
    >>> from nearfar.kernels import vc_confidence
    >>> round(vc_confidence(10_000, 11, 0.05), 4)
    0.099
    """
    check_parameter("vc_confidence", "n", n, [integer(1)])
    check_parameter("vc_confidence", "h", h, [integer(1, 2 * n)])
    check_parameter("vc_confidence", "eta", eta, [real(0, 1, open_low=True)])
    return math.sqrt((h * (math.log(2 * n / h) + 1) - math.log(eta / 4)) / n)

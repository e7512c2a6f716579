"""Local rules for one query after another, each step vectorised over rows: what benchmarks beat.

All return the neighbours of the queries. Of equal distances they take any; give them rows without
ties to compare.
"""

from __future__ import annotations

import time

import numpy as np
from scipy.optimize import brentq
from scipy.spatial.distance import cdist
from sklearn.svm import SVC


def adamenn_loop(X, codes, queries, K0=50, K1=3, K2=150, c=5.0, k=3):
    """ADAMENN, in one pass, for one query after another, vectorised over its K0 nearest."""
    scale = X.std(axis=0)
    rows, onehot = X / scale, np.eye(codes.max() + 1)[codes]
    lengths, L, J = np.einsum("ij,ij->i", rows, rows), K2 // 2, onehot.shape[1]
    found = np.empty((len(queries), k), np.intp)
    for i, query in enumerate(queries / scale):
        near = np.argpartition(((rows - query) ** 2).sum(axis=1), K0 - 1)[:K0]
        squares = lengths[near, None] - 2 * rows[near] @ rows.T + lengths
        region = np.argpartition(squares, K2 - 1, axis=1)[:, :K2]
        some = np.argpartition(np.take_along_axis(squares, region, 1), K1 - 1, axis=1)[:, :K1]
        shares = onehot[np.take_along_axis(region, some, 1)].mean(axis=1)
        far = np.abs(rows[region] - rows[near, None])
        inside = far <= np.partition(far, L - 1, axis=1)[:, L - 1 : L]
        counts = inside.transpose(0, 2, 1).astype(float) @ onehot[region]
        slab = (counts + 1) / (counts.sum(axis=2, keepdims=True) + J)
        means = ((shares[:, None] - slab) ** 2 / slab).sum(axis=2).mean(axis=0)
        weights = np.exp(c * (means.max() - means))
        found[i] = nearest((rows - query) ** 2 @ (weights / weights.sum()), k)
    return found


def scythe_loop(X, codes, queries, k=10, alpha=0.7, window=0.2, least=10):
    """The scythe for one query after another, each cut vectorised over rows and features."""
    scale = X.std(axis=0)
    rows, onehot = X / scale, np.eye(codes.max() + 1)[codes]
    found = np.empty((len(queries), k), np.intp)
    for i, query in enumerate(queries / scale):
        region = np.arange(len(rows))
        while len(region) > k:
            n = len(region)
            L = min(n, max(least, int(window * n)))
            apart, own = rows[region] - query, onehot[region]
            far = np.abs(apart)
            inside = far <= np.partition(far, L - 1, axis=0)[L - 1]
            counts = inside.T.astype(float) @ own
            gains = counts / counts.sum(axis=1, keepdims=True) - own.mean(axis=0)
            relevance = (gains**2).sum(axis=1)
            relevance = relevance / relevance.sum() if relevance.any() else relevance + 1
            deviations = apart.std(axis=0)
            deviations[deviations == 0] = 1
            scores = apart**2 @ (relevance / deviations**2)
            keep = max(k, int(alpha * n))
            kept = np.argpartition(scores, keep - 1)[:keep]
            region, scores = region[kept], scores[kept]
        found[i] = region[np.argsort(scores)]
    return found


def lfm_svm_loop(X, codes, queries, k=5, weight_scale=10.0):
    """LFM-SVM of two classes for one query after another, with ``brentq``."""
    middle, scale = np.median(X, axis=0), X.std(axis=0)
    rows, longest = (X - middle) / scale, 0.25 * np.sqrt(X.shape[1])
    gamma = 1 / rows.var(axis=0).sum()
    svc = SVC(gamma=gamma).fit(rows, codes)
    S, alpha, b = svc.support_vectors_, svc.dual_coef_[0], svc.intercept_[0]
    free = np.abs(alpha) < 1 - 1e-8
    to_free = cdist(rows, S[free])
    to_free[svc.support_[free], np.arange(free.sum())] = np.inf
    D, found = to_free.min(axis=1).mean(), np.empty((len(queries), k), np.intp)

    def value(x):
        apart = S - x
        return alpha @ np.exp(-gamma * np.einsum("ij,ij->i", apart, apart)) + b

    def value_and_slope(x):
        apart = S - x
        terms = alpha * np.exp(-gamma * np.einsum("ij,ij->i", apart, apart))
        return terms.sum() + b, 2 * gamma * terms @ apart

    for i, query in enumerate((queries - middle) / scale):
        x, (f, g) = query, value_and_slope(query)
        sign = np.sign(f)
        for _ in range(40):
            steep = np.linalg.norm(g)
            end = x - sign * min(1.5 * abs(f) / steep, longest) / steep * g
            f, g = value_and_slope(end)
            if f * sign < 0:
                break
            x = end
        else:
            other = rows[svc.decision_function(rows) * sign < 0]
            x, end = query, other[((other - query) ** 2).sum(axis=1).argmin()]
        t = brentq(lambda t, x=x, end=end: value(x + t * (end - x)), 0, 1, xtol=1e-13)
        normal = np.abs(value_and_slope(x + t * (end - x))[1])
        A = max(0.0, D - np.sqrt(((S[free] - query) ** 2).sum(axis=1).min()))
        weights = np.exp(weight_scale * A * normal / np.linalg.norm(normal))
        found[i] = nearest((rows - query) ** 2 @ (weights / weights.sum()), k)
    return found


def nearest(squares, k):
    """The k smallest, ascending."""
    some = np.argpartition(squares, k - 1)[:k]
    return some[np.argsort(squares[some])]


def without_ties(X, codes, queries):
    """Rows that lie apart by a little."""
    random = np.random.default_rng(1)
    return X + 1e-3 * random.random(X.shape), codes, queries + 1e-3 * random.random(queries.shape)


def two_classes(X, y, first, second):
    """Two thirds of the rows of two classes, in any order, and the others as queries."""
    some = np.random.default_rng(0).permutation(np.flatnonzero((y == first) | (y == second)))
    n = len(some) * 2 // 3
    return without_ties(X[some[:n]], (y[some[:n]] == second).astype(int), X[some[n:]])


# ---------------------------------------------------------------------- measurements


def beside_a_loop(rule, loop, X, codes, queries):
    """CPU seconds to fit and for all queries, beside those of a loop, which fits as it goes."""
    fit = least_seconds(lambda: rule.fit(X, codes))
    ask = least_seconds(lambda: rule.kneighbors(queries))
    wanted: list[np.ndarray] = []
    theirs = least_seconds(lambda: wanted.append(loop(X, codes, queries)))
    their_fit = least_seconds(lambda: loop(X, codes, queries[:0]))
    same = (rule.kneighbors(queries)[1] == wanted[0]).all(axis=1)
    return {
        "fit, seconds": fit,
        "ms a query": 1e3 * ask / len(queries),
        "loop, ms a query": 1e3 * theirs / len(queries),
        "times faster": theirs / (fit + ask),
        "times faster after the fit": (theirs - their_fit) / ask,
        "same neighbours": float(same.mean()),
    }


def least_seconds(work, runs=3, clock=time.process_time):
    """Fewest seconds of a few runs, of one that takes long; CPU seconds unless told."""
    best = np.inf
    for _ in range(runs):
        start = clock()
        work()
        best = min(best, clock() - start)
        if best > 20:
            break
    return best


def adamenn(X, codes, queries):
    """ADAMENN on letter; its fit counts, as the loop does that work for each query."""
    from nearfar import ADAMENNClassifier

    rule = ADAMENNClassifier(n_average_neighbors=50, n_region_neighbors=150)
    return beside_a_loop(rule, adamenn_loop, *without_ties(X, codes, queries))


def scythe(X, codes, queries):
    from nearfar import FriedmanClassifier

    return beside_a_loop(FriedmanClassifier(), scythe_loop, *without_ties(X, codes, queries))


def lfm_svm(X, codes, first=6, second=16):
    """LFM-SVM on two letters, G and Q unless others are given; the SVM is the same in the loop."""
    from nearfar import LFMSVMClassifier

    return beside_a_loop(LFMSVMClassifier(), lfm_svm_loop, *two_classes(X, codes, first, second))

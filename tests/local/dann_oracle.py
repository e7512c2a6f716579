"""DANN as a loop over queries, written from the paper of Hastie and Tibshirani."""

import numpy as np


def weights_of(distances, kind):
    h = distances.max()
    if kind == "uniform" or h == 0:
        return np.ones(len(distances))
    weights = (1 - (distances / h) ** 3) ** 3
    return weights if weights.sum() > 1e-20 else np.ones(len(distances))


def scatters_of(rows, codes, weights):
    """Return the within-class and between-class covariances, by definition."""
    p, total = rows.shape[1], weights.sum()
    shares, means = {}, {}
    for code in np.unique(codes):
        w = weights[codes == code]
        if w.sum() > 0:
            shares[code] = w.sum() / total
            means[code] = (w[:, None] * rows[codes == code]).sum(axis=0) / w.sum()
    mean = sum(shares[code] * means[code] for code in shares)
    between, within = np.zeros((p, p)), np.zeros((p, p))
    for code in shares:
        between += shares[code] * np.outer(means[code] - mean, means[code] - mean)
        for row, w in zip(rows[codes == code], weights[codes == code], strict=True):
            within += w * np.outer(row - means[code], row - means[code]) / total
    return within, between


def metric_from(within, between, epsilon, shrinkage):
    p = len(within)
    if np.trace(within) > 1e-13:
        within = (1 - shrinkage) * within + shrinkage * np.trace(within) / p * np.eye(p)
    else:
        within = np.eye(p)
    values, axes = np.linalg.eigh(within)
    root = axes @ np.diag(1 / np.sqrt(np.maximum(values, 1e-10 * values[-1]))) @ axes.T
    return root @ (root @ between @ root + epsilon * np.eye(p)) @ root


def metric_at(rows, codes, query, m, epsilon=1.0, max_iter=1, shrinkage=1e-3, weights="tricube"):
    """Return the metric at a query, for standardized features."""
    sigma, seen = np.eye(rows.shape[1]), []
    for step in range(max_iter):
        apart = rows - query
        d = np.sqrt(np.maximum([u @ sigma @ u for u in apart], 0))
        near = np.argsort(np.round(d, 12), kind="stable")[:m]
        if set(near) in seen:
            break
        seen.append(set(near))
        w = weights_of(d[near], weights)
        new = metric_from(*scatters_of(rows[near], codes[near], w), epsilon, shrinkage)
        settled = step and np.linalg.norm(new - sigma) <= 1e-3 * np.linalg.norm(sigma)
        sigma = new
        if settled:
            break
    return sigma

"""MKLpy: weights of kernels by EasyMKL or centred alignment (CKA), its machine behind or not."""

from importlib.metadata import version

from measure import main
from MKLpy.algorithms import CKA, EasyMKL

METHODS = {"EasyMKL": EasyMKL, "CKA": CKA}


def fit(kernels, y, *, method, machine, **settings):
    learner = METHODS[method](**settings)
    if machine:
        solution = learner.fit(list(kernels), y).solution
    else:
        solution = learner.combine_kernels(list(kernels), y)
    weights = [float(weight) for weight in solution.weights]
    return {"weights": weights}, {"weights": weights}


main(f"MKLpy {version('MKLpy')}", fit)

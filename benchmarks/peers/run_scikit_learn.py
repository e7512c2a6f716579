"""NCA of scikit-learn."""

from importlib.metadata import version

from measure import main
from sklearn.neighbors import NeighborhoodComponentsAnalysis


def fit(X, y, **settings):
    learner = NeighborhoodComponentsAnalysis(**settings).fit(X, y)
    arrays = {"L": learner.components_, "mapped": learner.transform(X[:10])}
    return arrays, {"iterations": learner.n_iter_}


main(f"scikit-learn {version('scikit-learn')}", fit)

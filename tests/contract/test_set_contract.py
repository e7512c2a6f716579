"""The contracts of sets and of points, for the learners over distributions."""

import warnings

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from nearfar import (
    AugmentedSpectralClustering,
    BagOfWords,
    EuclideanEmbedding,
    LaplacianEmbedding,
    MVEMClassifier,
    SetEmbedding,
    SetKNeighborsClassifier,
    SetSpectralClustering,
    all_learners,
    check_learner,
)
from nearfar.contract import checks
from nearfar.contract.sets import set_checks

ESTIMATORS = [
    SetEmbedding(4),
    SetEmbedding(4, embedding="laplacian"),
    EuclideanEmbedding(4),
    LaplacianEmbedding(4),
    SetSpectralClustering(3),
    SetKNeighborsClassifier(),
    BagOfWords(20),
]


@pytest.mark.parametrize(
    ("estimator", "check"),
    [
        pytest.param(estimator, check, id=f"{type(estimator).__name__}{k}-{name}")
        for k, estimator in enumerate(ESTIMATORS)
        for name, check in set_checks(estimator)
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_contract_of_sets(estimator, check):
    check(estimator)


def test_every_learner_of_sets_is_in_the_suite():
    names = {name for name, kind in all_learners().items() if kind.learner_tags.input == "sets"}
    assert names == {"BagOfWords", "SetEmbedding", "EuclideanEmbedding", "LaplacianEmbedding"}
    assert names <= {type(estimator).__name__ for estimator in ESTIMATORS}


class Forgetful(SetEmbedding):
    """Does not know its training sets again."""

    def transform(self, X):
        return super().transform(X) + 1e-3


def test_check_learner_runs_the_contract_of_sets():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(AssertionError, match="rtol=0, atol="):
            check_learner(Forgetful(4))


@parametrize_with_checks(
    [
        EuclideanEmbedding(),
        LaplacianEmbedding(),
        AugmentedSpectralClustering(),
        MVEMClassifier(),
    ]
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_contract_on_points(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    ("learner", "check"),
    [
        pytest.param(learner, check, id=f"{type(learner).__name__}-{name}")
        for learner in (EuclideanEmbedding(), LaplacianEmbedding())
        for name, check in checks(learner)
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_nearfar_contract_on_points(learner, check):
    check(learner)

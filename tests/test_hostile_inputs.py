"""Bad data, labels, parameters and queries for every estimator of the registry.

Each input must be refused with a ``ValueError`` or ``TypeError`` that names the argument, or give
finite results, within a limited processor time.
"""

import re
import signal
import warnings
from contextlib import contextmanager

import numpy as np
import pytest
from quick import quick
from scipy import sparse
from sklearn.base import clone
from sklearn.utils import check_random_state

from nearfar import Sets, all_estimators

#: Processor seconds of one fit and its predictions. An ordinary fit of this data takes below 3.
MAX_SECONDS = 20
OUTPUTS = ("transform", "predict", "predict_proba", "decision_function")
SCALES = [10.0**k for k in (-310, -200, -150, -110, -90, -50, -30, 30, 50, 90, 99, 120, 150, 200)]
QUERY_SCALES = [1e-310, 1e20, 1e50, 1e90, 1e99, 1e120, 1e150, 1e200, 1e300]
PARAMETER_VALUES = [0, -1, 10**6, 10**9, 10**30, 0.0, 1e-300, 1e300, -1.0, np.nan, np.inf]
PARAMETER_VALUES += [None, True, "nonsense", [], {}, np.array([1.0, np.nan]), object()]
#: Parameters that are numbers of repetitions. Large values take long, as requested.
COUNTS = "iter|epochs|n_init|n_rounds|n_passes|patience|n_jobs|verbose"
#: Inputs of the fast tests. All others are in the slow tests.
FAST = ["times 1e+200", "times 1e-200", "masked", "huge integer", "dict", "query times 1e+200"]


class TimeLimitExceeded(BaseException):
    """Not an Exception, so that no estimator catches it."""


@contextmanager
def limit_processor_time():
    def stop(*_):
        raise TimeLimitExceeded

    if not hasattr(signal, "setitimer"):  # Windows
        yield
        return
    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def make_data(name):
    """Small data of the estimator's input type: samples and labels, signs or values."""
    tags, random = all_estimators()[name].learner_tags, np.random.default_rng(0)
    if tags.input == "pairs":
        pairs = random.normal(size=(30, 2, 3))
        y = np.where(np.arange(30) % 2, 1, -1)
        pairs[y == 1, 1] = pairs[y == 1, 0] + 0.1 * random.normal(size=(15, 3))
        return pairs, y
    shape = {"tensors": (24, 6, 5), "sets": (18, 7, 3)}.get(tags.input, (36, 4))
    y = np.arange(shape[0]) % 3
    X = random.normal(size=shape) + 2 * random.normal(size=(3, *shape[1:]))[y]
    return X, y.astype(float) if tags.supervision == ("values",) else y


def as_type(X, dtype):
    """X as another dtype, with a warning of NumPy turned off."""
    with np.errstate(all="ignore"):
        return X.astype(dtype)


def put(X, index, value, dtype=None):
    changed = X.astype(dtype or X.dtype)
    changed[index] = value
    return changed


def hostile_X(X):
    """Names of bad X, and functions that make them."""
    first = (0,) * X.ndim
    last = X.shape[-1]
    cases = {f"times {scale:g}": lambda s=scale: X * s for scale in SCALES}
    for scale in (1e-40, 1e-30, 1e20, 1e30, 1e37):
        cases[f"float32 times {scale:g}"] = lambda s=scale: as_type(X * s, np.float32)
    for shift in (1e12, 1e50, 1e90, 1e150):
        cases[f"plus {shift:g}"] = lambda s=shift: X + s
    for value in (1e12, 1e50, 1e99, 1e-310, 1e160, np.nan, np.inf, -np.inf):
        cases[f"one value {value:g}"] = lambda v=value: put(X, first, v)
        cases[f"one sample {value:g}"] = lambda v=value: put(X, 0, v)
    for size in (30, 90, 300):
        cases[f"units of 1e{size}"] = lambda s=size: X * np.logspace(-s, s, last)
    return cases | {
        "float16": lambda: X.astype(np.float16),
        "integers": lambda: X.astype(int),
        "bool": lambda: X > 0,
        "zeros": lambda: np.zeros_like(X),
        "ones": lambda: np.ones_like(X),
        "equal samples": lambda: np.repeat(X[:1], len(X), axis=0),
        "one constant column": lambda: put(X, (..., 0), 7.0),
        "masked": lambda: np.ma.masked_greater(X, 1.0),
        "huge integer": lambda: put(X, first, 10**400, object),
        "dict": lambda: {"a": X},
        "generator": lambda: (row for row in [1.0, 2.0]),
        "text": lambda: put(X, first, "word", object),
        "complex": lambda: X + 1j,
        "sparse": lambda: sparse.csr_matrix(X.reshape(len(X), -1)),
        "None": lambda: None,
        "a number": lambda: 3.0,
        "string": lambda: "X",
        "no samples": lambda: X[:0],
        "one sample": lambda: X[:1],
        "no features": lambda: X[..., :0],
        "more dimensions": lambda: X[None, None],
        "dates": lambda: X.astype("datetime64[s]"),
        "structured": lambda: np.zeros(len(X), "f8,f8"),
    }


def hostile_y(y):
    """Names of bad y, and functions that make them."""
    n = len(y)
    cases = {
        "structured": lambda: np.zeros(n, "i,i"),
        "masked": lambda: np.ma.masked_equal(y, y[0]),
        "short": lambda: y[:-1],
        "columns": lambda: np.column_stack([y, y]),
        "NaN": lambda: put(y, 0, np.nan, float),
        "infinity": lambda: put(y, 0, np.inf, float),
        "missing": lambda: put(y, 0, None, object),
        "one class": lambda: np.full(n, y[0]),
        "all differ": lambda: np.arange(n),
        "huge integers": lambda: np.array([10**400 + int(k) for k in y], object),
        "mixed": lambda: put(y, 0, "a", object),
        "complex": lambda: y + 1j,
        "dates": lambda: y.astype("datetime64[s]"),
        "dict": lambda: {"a": 1},
        "lists": lambda: [[1], [1, 2]] + [[1]] * (n - 2),
        "a number": lambda: 3,
        "string": lambda: "labels",
    }
    for scale in (1e-310, 1e-200, 1e-90, 1e90, 1e200, 1e300):
        cases[f"times {scale:g}"] = lambda s=scale: y * s
    return cases


def hostile_queries(X):
    cases = {f"query times {scale:g}": lambda s=scale: X * s for scale in QUERY_SCALES}
    wanted = ("NaN", "masked", "huge integer", "dict", "no samples", "no features", "None")
    wanted += ("one value nan", "one value inf", "one value 1e+99", "text", "complex", "sparse")
    return cases | {f"query {k}": make for k, make in hostile_X(X).items() if k in wanted}


def find_fault(label, pattern, run):
    """What is wrong with the outcome of a run, or None."""
    try:
        with warnings.catch_warnings(record=True) as caught, limit_processor_time():
            warnings.simplefilter("always")
            outputs = run()
    except TimeLimitExceeded:
        return f"does not end within {MAX_SECONDS} s"
    except (ValueError, TypeError) as error:
        kind = type(error)
        if isinstance(error, np.linalg.LinAlgError) or not re.search(pattern, str(error)):
            return f"{kind.__name__} that does not name the argument: {str(error)[:200]}"
        return None
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    noise = [str(item.message) for item in caught if item.category is RuntimeWarning]
    if noise and "=" not in label:
        return f"RuntimeWarning: {noise[0]}"
    for method, output in outputs.items():
        values = np.asarray(output)
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            return f"{method} returns NaN or infinity"
    return None


def use(fitted, X):
    return {
        method: getattr(fitted, method)(X) for method in OUTPUTS if hasattr(type(fitted), method)
    }


def list_inputs(name):
    """Yield a description, the pattern of the message, and a function that runs the input."""
    estimator, (X, y) = quick(name), make_data(name)
    parameters = estimator.get_params(deep=False)
    # A message may also name a parameter whose value does not suit the data or another parameter.
    messages_on_parameters = "|".join(rf"\b{parameter}\b" for parameter in (*parameters, "X"))
    samples = r"pairs|\b[Ss]et|[Ss]equence|\by\b|" + messages_on_parameters

    def fit(X, y, estimator=estimator, queries=None):
        return use(clone(estimator).fit(X, y), X if queries is None else queries)

    for label, make in hostile_X(X).items():
        yield label, samples, lambda make=make: fit(make(), y)
    if estimator.learner_tags.input == "sets":
        sets = Sets.from_list(list(X * 1e200))
        yield "Sets times 1e+200", samples, lambda: fit(sets, y)
    for label, make in hostile_y(y).items():
        yield f"y {label}", r"\b(y|ids|X)\b|supervision", lambda make=make: fit(X, make())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = clone(estimator).fit(X, y)
    for label, make in hostile_queries(X).items():
        yield label, samples, lambda make=make: use(fitted, make())
    for parameter in parameters:
        for value in PARAMETER_VALUES:
            if re.search(COUNTS, parameter) and type(value) is int and value > 1:
                continue
            changed = quick(name)
            setattr(changed, parameter, value)
            yield (
                f"{parameter}={value!r}",
                messages_on_parameters,
                lambda changed=changed: use(changed.fit(X, y), X),
            )


def find_faults(name, is_wanted):
    with np.errstate(all="ignore"):
        cases = [case for case in list_inputs(name) if is_wanted(case[0])]
    outcomes = ((label, find_fault(label, pattern, run)) for label, pattern, run in cases)
    return [f"{label}: {fault}" for label, fault in outcomes if fault]


@pytest.mark.parametrize("name", sorted(all_estimators()))
def test_a_few_hostile_inputs(name):
    assert not find_faults(name, lambda label: label in FAST)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(all_estimators()))
def test_all_hostile_inputs(name):
    faults = find_faults(name, lambda label: label not in FAST)
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("name", sorted(all_estimators()))
@pytest.mark.filterwarnings("ignore")
def test_numpys_global_random_state_is_not_used(name):
    before = check_random_state(None).get_state()
    X, y = make_data(name)
    use(quick(name).fit(X, y), X)
    after = check_random_state(None).get_state()
    assert before[2] == after[2]
    np.testing.assert_array_equal(before[1], after[1])

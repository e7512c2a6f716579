"""Compare the results of this checkout with those of another commit, on this machine.

    python tools/unchanged.py BASE

BASE is any commit. Every estimator of the registry is fitted to fixed data, with its default
settings and with each alternative of a parameter that takes words or True and False. Coordinates,
predictions and objectives must agree to a relative 1e-8. Models that the base saved must load and
give the same results here, and the public names must be the same. The exit code is 1 if anything
differs that is not in one of the tables below. Run it by hand: it takes some minutes. Nothing is
stored except these tables.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import pickle
import pkgutil
import re
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
#: Relative difference up to which two results are the same.
TOLERANCE = 1e-8
#: Seconds after which the alternatives of one estimator are given up, in both checkouts alike.
LIMIT = 60.0

#: Parameters that have a new name: {(class or "*", old): new}.
RENAMED_PARAMETERS: dict[tuple[str, str], str] = {
    ("ADAMENNClassifier", "c"): "weight_scale",
    ("ADAMENNClassifier", "n_average"): "n_average_neighbors",
    ("ADAMENNClassifier", "n_iter"): "max_iter",
    ("ADAMENNClassifier", "n_posterior"): "n_posterior_neighbors",
    ("ADAMENNClassifier", "n_region"): "n_region_neighbors",
    ("ADAMENNClassifier", "n_slab"): "n_slab_neighbors",
    ("AlignmentKernelLearner", "mode"): "kernel_family",
    ("AttentionROI", "size"): "crop_size",
    ("AugmentedSpectralClustering", "form"): "gaussian_center",
    ("AugmentedSpectralClustering", "recognize"): "match_training_points",
    ("ClassicalMDS", "dissimilarity"): "metric",
    ("DANNClassifier", "n_iter"): "max_iter",
    ("DANNClassifier", "n_metric"): "n_metric_neighbors",
    ("DANNSubspace", "n_metric"): "n_metric_neighbors",
    ("DSDC", "zeta"): "within_weight",
    ("EasyMKL", "lam"): "regularization",
    ("EuclideanEmbedding", "form"): "gaussian_center",
    ("EuclideanEmbedding", "recognize"): "match_training_points",
    ("FractionalStepLDA", "alpha"): "step_factor",
    ("FriedmanClassifier", "alpha"): "keep_fraction",
    ("FriedmanClassifier", "mode"): "variant",
    ("GTDA", "delta"): "dim_fraction",
    ("GTDA", "zeta"): "within_weight",
    ("GaborFeatures", "delta"): "envelope_width",
    ("GaborFeatures", "f"): "frequency_ratio",
    ("GaborFeatures", "k_max"): "max_frequency",
    ("GaborFeatures", "kind"): "sum_over",
    ("GaborFeatures", "n_directions"): "n_orientations",
    ("GaborFeatures", "size"): "mask_size",
    ("IdealizedMetric", "C_D"): "C_dissimilar",
    ("IdealizedMetric", "C_S"): "C_similar",
    ("IdealizedMetric", "base"): "base_metric",
    ("KernelIdealizedMetric", "C_D"): "C_dissimilar",
    ("KernelIdealizedMetric", "C_S"): "C_similar",
    ("LDA", "n_principal"): "n_pca_components",
    ("LDA", "pair"): "scatter_pair",
    ("LDA", "zeta"): "within_weight",
    ("LFMSVMClassifier", "a_scale"): "weight_scale",
    ("LMNN", "n_principal"): "n_pca_components",
    ("LandmarkMVU", "omega"): "slack_penalty",
    ("LaplacianEmbedding", "form"): "gaussian_center",
    ("LaplacianEmbedding", "recognize"): "match_training_points",
    ("MCML", "n_principal"): "n_pca_components",
    ("MDML", "push"): "push_weight",
    ("MDS", "metric"): "metric_mds",
    ("MGMD", "eta"): "equality_weight",
    ("MGMKLD", "eta"): "equality_weight",
    ("MKLClassifier", "learner"): "estimator",
    ("MLKR", "n_principal"): "n_pca_components",
    ("MLKR", "n_restarts"): "n_init",
    ("MVU", "omega"): "slack_penalty",
    ("MarginKernelLearner", "mode"): "kernel_family",
    ("MarginKernelLearner", "tau"): "dual_ridge",
    ("MultiMetricLMNN", "cells"): "partition",
    ("MultiMetricLMNN", "n_cells"): "n_regions",
    ("MultimodalMGMKLD", "eta"): "equality_weight",
    ("NCA", "n_principal"): "n_pca_components",
    ("NCA", "n_restarts"): "n_init",
    ("PARDA", "n_principal"): "n_pca_components",
    ("QuasiconformalClassifier", "n_posterior"): "n_posterior_neighbors",
    ("RCA", "n_principal"): "n_pca_components",
    ("RandomProjection", "kind"): "matrix_type",
    ("ShortFukunagaClassifier", "n_metric"): "n_metric_neighbors",
    ("TR1DA", "zeta"): "within_weight",
    ("TensorGraphEmbedding", "zeta"): "within_weight",
    ("TensorStandardizer", "per"): "scope",
    ("TwoDLDA", "keep"): "selection",
    ("VariationalMVU", "omega"): "slack_penalty",
}
#: Values of parameters that have a new name: {(class or "*", new parameter, old): new}.
RENAMED_VALUES: dict[tuple[str, str, str], str] = {
    ("AugmentedSpectralClustering", "gaussian_center", "smoothed"): "mean",
    ("AugmentedSpectralClustering", "gaussian_center", "raw"): "point",
    ("EuclideanEmbedding", "gaussian_center", "smoothed"): "mean",
    ("EuclideanEmbedding", "gaussian_center", "raw"): "point",
    ("GaborFeatures", "sum_over", "full"): "none",
    ("GaborFeatures", "sum_over", "D"): "orientations",
    ("GaborFeatures", "sum_over", "S"): "scales",
    ("GaborFeatures", "sum_over", "SD"): "both",
    ("LaplacianEmbedding", "gaussian_center", "smoothed"): "mean",
    ("LaplacianEmbedding", "gaussian_center", "raw"): "point",
}
#: Public names that have a new name: {"package.old": "package.new"}; "" if it was removed.
RENAMED_NAMES: dict[str, str] = {
    "base.GuidedLearner": "base.ConstraintLearner",
    "base.LocalVoter": "base.LocalClassifier",
    "base.NearestObjects": "base.NeighborsBase",
    "base.NeighborVoter": "base.NeighborsClassifier",
    "base.TensorInput": "base.TensorEstimator",
    "base.ThroughLearner": "base.AfterLearner",
    "base.report_of": "base.get_reporter",
    "datasets.EMBEDDED": "datasets.BUILT_IN",
}
#: Differences that are intended: {regular expression over the printed line: reason}.
INTENDED: dict[str, str] = {
    r"^public name datasets\.(BuiltIn|builtin) is new": "a registry of the built-in datasets",
    r"^public name contract\.": "the package lists no public names; its checks were renamed",
}

#: Attributes of a fitted estimator that are compared.
_ATTRIBUTES = ("objective_", "components_", "embedding_", "labels_", "threshold_", "shrinkage_")
#: Small settings for estimators that otherwise take long.
_SMALL: dict[str, dict[str, Any]] = {
    "MultimodalMGMKLD": {"max_clusters": 3},
    "SetSpectralClustering": {"n_clusters": 3},
    "BagOfWords": {"n_words": 20},
    "TR1A": {"n_components": 3},
    "TR1DA": {"n_components": 3},
    "IFEM": {"n_components": 3},
}


# Results of one checkout


def make_data(kind: str) -> tuple[Any, Any, Any]:
    """Return X, labels and numbers to predict, for an input kind of the registry."""
    random = np.random.RandomState(0)
    y = np.arange(60) % 3
    centers = 2.0 * random.normal(size=(3, 5))
    X = centers[y] + random.normal(size=(60, 5)) @ (np.eye(5) + 0.3 * random.normal(size=(5, 5)))
    values = X[:, 0] + 0.1 * random.normal(size=60)
    if kind == "tensors":
        factors = random.normal(size=(3, 4, 5))
        return factors[y] + 0.7 * random.normal(size=(60, 4, 5)), y, values
    if kind == "sets":
        sizes = random.randint(8, 20, size=60)
        shapes = random.normal(size=(3, 3, 3)) + 2 * np.eye(3)
        means = 2.0 * random.normal(size=(3, 3))
        sets = [
            random.normal(size=(t, 3)) @ shapes[k] + means[k] for t, k in zip(sizes, y, strict=True)
        ]
        return sets, y, values
    if kind == "pairs":
        ends = random.randint(0, 60, size=(80, 2))
        return X[ends], np.where(y[ends[:, 0]] == y[ends[:, 1]], 1, -1), values[:1]
    return X, y, values


def alternatives(estimator_class: type) -> list[dict[str, Any]]:
    """Return one setting per alternative word, and per flipped True or False, of a parameter."""
    found: list[dict[str, Any]] = [{}]
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(estimator_class).parameters.items()
    }
    for name, allowed in estimator_class.parameters.items():  # type: ignore[attr-defined]
        default = defaults.get(name)
        if isinstance(default, bool):
            found.append({name: not default})
            continue
        words = [w for one in allowed for w in re.findall(r"'([^']+)'", one.description)]
        found += [{name: word} for word in dict.fromkeys(words) if word != default]
    return [one for one in found if "verbose" not in one]


def run_case(estimator_class: type, setting: dict[str, Any], folder: Path | None) -> dict[str, Any]:
    """Fit one estimator, and return its results, or the type of the error."""
    import nearfar

    tags = estimator_class.learner_tags  # type: ignore[attr-defined]
    X, y, values = make_data(tags.input)
    guides = getattr(tags, "supervision", None) or getattr(tags, "learns_from", ())
    target = values if guides and "labels" not in guides and "values" in guides else y
    small = _SMALL.get(estimator_class.__name__, {})
    try:
        estimator = estimator_class(**small | setting).fit(X, target)
        found: dict[str, Any] = {
            name: np.asarray(getattr(estimator, name))
            for name in _ATTRIBUTES
            if np.asarray(getattr(estimator, name, "")).dtype.kind in "fiub"
        }
        found |= use(estimator, X)
    except Exception as error:
        return {"error": type(error).__name__}
    if folder is not None and not setting:
        path = folder / f"{estimator_class.__name__}.nf"
        try:
            nearfar.save(estimator, path, force=True)
        except Exception as error:
            found["save"] = np.array([len(type(error).__name__)])
    return found


def use(estimator: Any, X: Any) -> dict[str, Any]:
    """Return coordinates, predictions and neighbors of the training samples."""
    found = {}
    for method in ("transform", "predict", "predict_proba", "decision_function"):
        if hasattr(estimator, method):
            found[method] = np.asarray(getattr(estimator, method)(X))
    return found


def public_names() -> dict[str, list[str]]:
    """Return the names of nearfar and of each public package."""
    import nearfar

    names = {"nearfar": sorted(nearfar.__all__)}
    for module in pkgutil.iter_modules(nearfar.__path__):
        if module.ispkg and not module.name.startswith("_") and module.name != "app":
            package = importlib.import_module(f"nearfar.{module.name}")
            listed = getattr(package, "__all__", dir(package))
            names[module.name] = sorted(n for n in listed if not n.startswith("_"))
    return names


def dump(out: Path, models: Path | None, base_models: Path | None, only: str) -> None:
    """Write all results of this checkout, and those of the models that the base saved."""
    import nearfar

    warnings.simplefilter("ignore")
    results: dict[tuple[str, tuple[tuple[str, Any], ...]], Any] = {}
    for name, estimator_class in nearfar.all_estimators().items():
        if only and not re.search(only, name):
            continue
        began = time.monotonic()
        for setting in alternatives(estimator_class):
            if time.monotonic() - began > LIMIT:
                break
            key = (name, tuple(sorted(setting.items())))
            results[key] = run_case(estimator_class, setting, models)
        print(f"{name}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
    loaded = {}
    for path in sorted(base_models.glob("*.nf")) if base_models else ():
        try:
            estimator = nearfar.load(path)
            loaded[path.stem] = use(estimator, make_data(estimator.learner_tags.input)[0])
        except Exception as error:
            loaded[path.stem] = {"error": f"{type(error).__name__}: {error}"}
    out.write_bytes(pickle.dumps({"cases": results, "names": public_names(), "loaded": loaded}))


# Comparison of two checkouts


def renamed(key: tuple[str, tuple[tuple[str, Any], ...]]) -> Any:
    """Return a case of the base under its new names."""
    name, setting = key
    moved = []
    for parameter, value in setting:
        new = RENAMED_PARAMETERS.get((name, parameter), RENAMED_PARAMETERS.get(("*", parameter)))
        new = parameter if new is None else new
        other = RENAMED_VALUES.get((name, new, value), RENAMED_VALUES.get(("*", new, value)))
        moved.append((new, value if other is None else other))
    return name, tuple(sorted(moved))


def difference(old: dict[str, Any], new: dict[str, Any]) -> str:
    """Return what differs between the results of a case, or nothing."""
    if "error" in old or "error" in new:
        same = old.get("error") == new.get("error")
        return "" if same else f"error {old.get('error')} → {new.get('error')}"
    if old.keys() != new.keys():
        return f"results {sorted(old)} → {sorted(new)}"
    for key, before in old.items():
        after = new[key]
        if before.shape != after.shape:
            return f"{key}: shape {before.shape} → {after.shape}"
        if before.dtype.kind in "fc":
            scale = float(np.nanmax(np.abs(before), initial=0.0)) or 1.0
            if not np.allclose(
                after, before, rtol=TOLERANCE, atol=TOLERANCE * scale, equal_nan=True
            ):
                return f"{key}: differs by {np.nanmax(np.abs(after - before)) / scale:.1e}"
        elif not np.array_equal(before, after):
            return f"{key}: {int((before != after).sum())} values differ"
    return ""


def compare(base: dict[str, Any], head: dict[str, Any], only: str) -> list[str]:
    """Return a line per difference that no table explains."""
    lines = []
    cases = {renamed(key): found for key, found in base["cases"].items()}
    for key in sorted(cases.keys() | head["cases"].keys(), key=str):
        name = f"{key[0]}({', '.join(f'{k}={v!r}' for k, v in key[1])})"
        if key not in head["cases"] or key not in cases:
            why = "only in the base" if key in cases else "only in this checkout"
        else:
            why = difference(cases[key], head["cases"][key])
        lines += [f"{name}: {why}"] if why else []
    for name, found in head["loaded"].items():
        why = difference({k: v for k, v in cases[name, ()].items() if k in found}, found)
        lines += [f"saved model of {name}: {found.get('error', why)}"] if why else []
    for package, names in base["names"].items() if not only else ():
        wanted = {RENAMED_NAMES.get(f"{package}.{n}", f"{package}.{n}") for n in names} - {""}
        found = {f"{package}.{n}" for n in head["names"].get(package, ())}
        lines += [f"public name {name} is missing" for name in sorted(wanted - found)]
        lines += [f"public name {name} is new" for name in sorted(found - wanted)]
    return [line for line in lines if not any(re.search(one, line) for one in INTENDED)]


def run(source: Path, *words: str) -> None:
    """Run this file with the library of a checkout."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment = os.environ | threads | {"PYTHONPATH": str(source / "src")}
    subprocess.run([sys.executable, __file__, *words], check=True, env=environment)


def main() -> int:
    """Compare, or with ``--dump`` write the results of one checkout."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("base", nargs="?", help="the commit to compare with")
    parser.add_argument("--only", default="", metavar="REGEX", help="only these estimators")
    parser.add_argument("--dump", nargs=3, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.dump:
        out, models, base_models = (None if str(p) == "-" else p for p in options.dump)
        dump(out, models, base_models, options.only)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "models").mkdir()
        tree = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*tree, "add", "-q", "--detach", place / "base", options.base], check=True)
        try:
            only = ("--only", options.only)
            run(place / "base", "--dump", str(place / "b"), str(place / "models"), "-", *only)
            run(ROOT, "--dump", str(place / "h"), "-", str(place / "models"), *only)
        finally:
            subprocess.run([*tree, "remove", "--force", place / "base"], check=True)
        found = [pickle.loads((place / name).read_bytes()) for name in "bh"]
    lines = compare(*found, options.only)
    print("\n".join(lines))
    cases, n_models = found[1]["cases"], len(found[1]["loaded"])
    failed = sum("error" in case for case in cases.values())
    print(f"{len(cases)} cases ({failed} raise an error) and {n_models} saved models compared.")
    print(f"{len(lines)} differences." if lines else "No differences.")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())

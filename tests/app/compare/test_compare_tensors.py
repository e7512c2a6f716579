"""Maps of tensors beside maps of rows: what they are told, what follows them, what is kept."""

import base64
import io
import json

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from tensor_learners import LeadingModes, stripes, under_light

import nearfar
from nearfar import LDA, PCA, compare
from nearfar.app.compare import driver, folds
from nearfar.app.compare.embeddings import in_modes
from nearfar.app.compare.journal import identity
from nearfar.app.compare.methods import family, learners, of_rows, reduced
from nearfar.app.tables.inputs import as_table

Image = pytest.importorskip("PIL.Image")

QUICK = {"repeats": 1, "isolate": False, "verbose": False, "context": False}


def methods_of(result):
    return {method["name"]: method for method in result.document["methods"]}


# ---------------------------------------------------------------------- settings


def test_a_map_of_tensors_is_tried_alone_and_with_an_lda_behind_it():
    (method,) = learners({"modes": LeadingModes()}, tensor_shape=(6, 5), then="auto")
    labels = [setting.label for setting in method.settings]
    assert labels == ["raw, then LDA", "raw", "unit norm, then LDA", "unit norm"]
    assert [isinstance(one.after, LDA) for one in method.settings] == [True, False, True, False]
    assert method.settings[0].after.shrinkage == 0.1
    # Numbers stay as they are at first: a picture is no table of columns.
    assert method.settings[0].scale == "passthrough"
    assert isinstance(method.settings[2].scale, Normalizer)
    assert all(one.estimator.tensor_shape == (6, 5) for one in method.settings)


def test_other_settings_go_before_other_scalings():
    several = [LeadingModes(1), LeadingModes(2), LeadingModes(4)]
    (method,) = learners({"modes": several}, tensor_shape=(6, 5), then="auto")
    assert [setting.label for setting in method.settings] == [
        "raw, n_components=1, then LDA",
        "raw, n_components=1",
        "raw, n_components=2, then LDA",
        "raw, n_components=4, then LDA",
    ]


@pytest.mark.parametrize(
    ("then", "scale", "labels"),
    [
        ("none", "auto", ["raw", "unit norm", "standardized"]),
        ("lda", "auto", ["raw, then LDA", "unit norm, then LDA", "standardized, then LDA"]),
        ("auto", "standard", ["standardized, then LDA", "standardized"]),
        ("lda", "none", ["raw, then LDA"]),
    ],
)
def test_what_follows_and_the_scaling_can_be_said(then, scale, labels):
    (method,) = learners({"modes": LeadingModes()}, scale, tensor_shape=(6, 5), then=then)
    assert [setting.label for setting in method.settings] == labels


def test_a_classifier_of_tensors_is_scaled_as_others_are_and_not_followed():
    (method,) = learners("stm", tensor_shape=(6, 5), then="auto")
    assert isinstance(method.settings[0].scale, StandardScaler)
    assert all(one.after == "passthrough" for one in method.settings)
    assert all(one.estimator.tensor_shape == (6, 5) for one in method.settings)


def test_what_iterates_over_tensors_does_not_come_behind_a_pca():
    given = {"modes": LeadingModes(), "nca": nearfar.NCA(), "mmc": nearfar.MMC()}
    tensors, nca, mmc = reduced(learners(given, tensor_shape=(16, 16)), 256, 400)
    assert all(one.reduce == "passthrough" for one in tensors.settings)
    # Of rows some learners find the axes themselves.
    assert all(one.estimator.n_pca_components == 64 for one in nca.settings)
    assert all(isinstance(one.reduce, PCA) for one in mmc.settings)


def test_the_first_step_of_a_pipeline_is_told_the_shape():
    given = make_pipeline(LeadingModes(), LDA())
    told = of_rows("mine", given, (6, 5))
    assert told[0].tensor_shape == (6, 5) and given[0].tensor_shape is None
    assert of_rows("mine", make_pipeline(StandardScaler(), LDA()), (6, 5))[1].n_components is None
    with pytest.raises(ValueError, match=r"takes tensors, .* have no shape: say it with --images"):
        of_rows("mine", given, None)


def test_dimensions_are_shared_out_among_modes():
    assert in_modes(4, (8, 8)) == [(4, 1), (2, 2), (1, 4)]
    with pytest.raises(ValueError, match="n_components=7 cannot be shared out among the modes"):
        in_modes(7, (6, 5))


# ---------------------------------------------------------------------- the comparison


@pytest.fixture(scope="module")
def result():
    images, y = stripes()
    return compare(images, y, methods={"modes": LeadingModes(), "lda": LDA()}, **QUICK)


def test_tensors_and_rows_are_compared_on_the_same_folds(result):
    rows = methods_of(result)
    assert rows["modes"]["status"] == rows["lda"]["status"] == "done"
    assert rows["modes"]["folds_done"] == rows["lda"]["folds_done"] == 5
    assert result.document["data"]["tensor_shape"] == [6, 5]


def test_errors_are_those_of_the_pipeline_by_hand(result):
    images, y = stripes()
    flat = images.reshape(len(images), -1)
    for number, one in enumerate(methods_of(result)["modes"]["results"]):
        test = result.document["folds"][number]["test"]
        train = np.setdiff1d(np.arange(len(y)), test)
        learner = LeadingModes(tensor_shape=(6, 5))
        scale = [Normalizer()] if "unit" in one["setting"] else []
        after = [LDA(shrinkage=0.1)] if "LDA" in one["setting"] else []
        chain = make_pipeline(*scale, learner, *after, nearfar.KNNClassifier(n_neighbors=one["k"]))
        chain.fit(flat[train], y[train])
        assert one["error"] == pytest.approx(1 - chain.score(flat[test], y[test]))


@pytest.mark.slow
def test_the_lines_that_repeat_the_run_give_its_error(result, capsys):
    images, y = under_light(240)  # an LDA removes what is alike in both classes
    options = QUICK | {"tuning": "holdout", "scale": "none"}
    alone = compare(images, y, methods={"modes": LeadingModes()}, **options)
    assert alone.best == "modes"
    assert "'after': [LDA(shrinkage=0.1)]" in alone.code
    space = {"X": images.reshape(len(images), -1), "y": y}
    exec(alone.code, space)
    printed = float(capsys.readouterr().out.split()[-1])
    assert printed == pytest.approx(methods_of(alone)["modes"]["error"], abs=1e-9)


def test_third_order_and_channels_of_one(result):
    images, y = stripes(shape=(6, 5, 3))
    found = compare(images, y, methods={"modes": LeadingModes(2)}, tuning="k", **QUICK)
    assert methods_of(found)["modes"]["status"] == "done"
    assert found.document["tensors"]["modes"]["kept"] == [2, 2, 2]
    assert as_table(np.ones((4, 8, 8, 1)), [0, 1, 0, 1]).tensor_shape == (8, 8)


def test_a_dropped_pixel_leaves_no_tensor():
    images, y = stripes()
    with pytest.raises(ValueError, match="have no shape"):
        compare(images, y, methods={"modes": LeadingModes()}, drop=[3], **QUICK)
    found = compare(images, y, methods={"lda": LDA()}, drop=[3], tuning="k", **QUICK)
    assert methods_of(found)["lda"]["status"] == "done"


def test_in_regression_and_without_labels_nothing_follows():
    images, _ = stripes()
    values = images.mean(axis=(1, 2))
    options = QUICK | {"tuning": "full"}
    found = compare(images, values, task="regression", methods={"modes": LeadingModes()}, **options)
    used = {one["setting"] for one in methods_of(found)["modes"]["results"]}
    assert used <= {"raw", "unit norm", "standardized"}
    unlabelled = compare(images, methods={"modes": LeadingModes(2)}, **QUICK)
    assert methods_of(unlabelled)["modes"]["status"] == "done"


def test_an_interrupted_comparison_of_tensors_goes_on(tmp_path, monkeypatch):
    images, y = stripes()
    options = QUICK | {"tuning": "k", "journal": tmp_path / "a.journal"}
    methods = {"modes": LeadingModes()}
    with monkeypatch.context() as patched:
        patched.setattr(driver, "make_document", _stop)
        with pytest.raises(RuntimeError, match="stopped"):
            compare(images, y, methods=methods, **options)
    whole = compare(images, y, methods=methods, **QUICK | {"tuning": "k"})
    with monkeypatch.context() as patched:
        patched.setattr(folds, "run_fold", _stop)  # all are in the journal
        again = compare(images, y, methods=methods, **options)
    assert methods_of(again)["modes"]["error"] == methods_of(whole)["modes"]["error"]
    assert again.document["tensors"] == whole.document["tensors"]
    # An LDA behind it makes it another method.
    first, second = (
        learners({"modes": LeadingModes()}, "none", tensor_shape=(6, 5), then=then)[0]
        for then in ("lda", "none")
    )
    assert identity(first) != identity(second)


def _stop(*_, **__):
    raise RuntimeError("stopped")


# ---------------------------------------------------------------------- what the page draws


def test_the_document_has_factors_eigen_tensors_and_samples(result):
    found = result.document["tensors"]["modes"]
    assert found["shape"] == [6, 5] and found["kept"] == [3, 3]
    assert [mode["length"] for mode in found["factors"]] == [6, 5]
    assert len(found["eigen"]) == 8 and len(found["samples"]) == 6
    assert all(one["picture"].startswith("data:image/png") for one in found["eigen"])
    shares = [one["share"] for one in found["eigen"]]
    assert shares == sorted(shares, reverse=True) and sum(shares) <= 1 + 1e-9
    assert 0 < found["share"] < 1
    json.dumps(result.document, allow_nan=False)


def test_no_row_is_drawn_where_none_may_be_shown():
    images, y = stripes()
    options = QUICK | {"show_rows": False, "tuning": "k"}
    found = compare(images, y, methods={"modes": LeadingModes()}, **options)
    assert found.document["tensors"]["modes"]["samples"] == []
    assert found.document["tensors"]["modes"]["factors"]


# ---------------------------------------------------------------------- families


def test_the_family_of_tensors_is_what_shortens_them():
    names = family("tensors")
    assert all(nearfar.all_estimators()[name].learner_tags.input == "tensors" for name in names)
    assert not {"GaborFeatures", "AttentionROI", "TensorStandardizer"} & set(names)
    assert "LDA" in family("discriminant")


# ---------------------------------------------------------------------- classifiers


@pytest.fixture(scope="module")
def machines():
    images, y = stripes()
    names = np.array(["ann", "bob", "cy"])[y]
    methods = {
        "modes": LeadingModes(),
        "stm": nearfar.STM(rank=2),
        "rests": nearfar.LSSTM(multi_class="ovr"),
    }
    return compare(images, names, methods=methods, scale="none", **QUICK | {"tuning": "k"})


def test_the_family_of_tensors_has_its_classifiers_for_context(machines):
    assert {"STM", "NuSTM", "LSSTM", "TMPM", "TFDA"} <= set(family("tensors"))
    roles = {name: method["role"] for name, method in methods_of(machines).items()}
    assert roles["modes"] == "learner" and roles["stm"] == roles["rests"] == "context"
    assert machines.best in ("reference", "modes") and "Other classifiers (for context)" in str(
        machines
    )


def test_weight_tensors_are_pictures_with_the_classes_on_either_side(machines):
    found = machines.document["tensors"]
    pairs, rests = found["stm"], found["rests"]
    assert pairs["shape"] == [6, 5] and (pairs["rank"], pairs["n_problems"]) == (2, 3)
    sides = [(one["dark"], one["light"]) for one in pairs["weights"]]
    assert sides == [("ann", "bob"), ("ann", "cy"), ("bob", "cy")]
    rest_sides = [(one["dark"], one["light"]) for one in rests["weights"]]
    assert rest_sides == [(None, "ann"), (None, "bob"), (None, "cy")]
    # The picture is that of the weights of the first fold, light where they are positive.
    images, y = stripes()
    flat = images.reshape(len(images), -1)
    train = np.setdiff1d(np.arange(len(y)), machines.document["folds"][0]["test"])
    machine = nearfar.STM(rank=2, tensor_shape=(6, 5)).fit(flat[train], y[train])
    for weight, one in zip(machine.coef_, pairs["weights"], strict=True):
        _, data = one["picture"].split(",", 1)
        pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))), float)
        wanted = weight.reshape(6, 5) / np.abs(weight).max()
        assert np.abs(pixels - 127.5 * (1 + wanted)).max() <= 1
    json.dumps(machines.document, allow_nan=False)


def test_weights_that_are_no_image_are_told_of_and_not_drawn():
    clips, y = stripes(shape=(6, 5))
    clips = np.stack([clips] * 2, axis=1)[:, :, None]  # of order four
    found = compare(clips, y, methods={"lsstm": nearfar.LSSTM()}, **QUICK | {"tuning": "k"})
    weights = found.document["tensors"]["lsstm"]
    assert weights["weights"] == [] and weights["n_problems"] == 3

"""Folders of pictures, and rows that are images, in every command that reads data."""

import csv
import json
import shlex

import numpy as np
import pandas as pd
import pytest
from tensor_learners import stripes

import nearfar
from nearfar.app import cli
from nearfar.app.cli import main
from nearfar.app.cli.again import fit_words
from nearfar.app.compare.chain import Chosen
from nearfar.app.compare.methods import learners

Image = pytest.importorskip("PIL.Image")

SHAPE = (8, 6)
QUICK = ["--repeats", "1", "--tuning", "k", "--no-context", "--in-process"]


def as_pixels(images):
    low, high = images.min(), images.max()
    return np.rint(255 * (images - low) / (high - low)).astype(np.uint8)


def run(*words):
    return main([str(word) for word in words])


def read(text):
    return list(csv.DictReader(text.splitlines()))


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def faces(here):
    """A messy folder of three people, and one of new pictures: some are larger, or in colours."""
    images, y = stripes(48, shape=SHAPE)
    for k, (pixels, code) in enumerate(zip(as_pixels(images), y, strict=True)):
        root = here / ("faces" if k < 36 else "new")
        folder = root / ["ann", "bob", "cy"][code]
        folder = folder / "2024" if k % 5 == 1 else folder
        folder.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(pixels)
        if k % 7 == 2:
            image = image.convert("RGBA")
        if k % 11 == 3 or k >= 42:
            image = image.resize((2 * SHAPE[1], 2 * SHAPE[0]), Image.Resampling.NEAREST)
        image.save(folder / f"{k}.png")
    (here / "faces" / "dan").mkdir()
    (here / "faces" / "ann" / "notes.txt").write_text("x")
    (here / "faces" / "ann" / "._1.png").write_bytes(b"x")
    return here / "faces"


@pytest.fixture
def table(here):
    images, y = stripes(60, shape=SHAPE)
    frame = pd.DataFrame(
        images.reshape(60, -1), columns=[f"p{i}" for i in range(SHAPE[0] * SHAPE[1])]
    )
    frame["p0"] = 0.0  # a blank corner
    frame.insert(3, "who", np.array(["ann", "bob", "cy"])[y])
    frame.insert(0, "number", np.arange(60) * 7)
    frame.to_csv("faces.csv", index=False)
    return frame


# From a folder to an answer, a model, labels and neighbours


def test_a_folder_with_several_sizes_asks_for_one(faces, capsys):
    assert run("compare", "faces", *QUICK) == 2
    error = capsys.readouterr().err
    assert "has 16×12 pixels (height × width)" in error
    assert "Pass --images 8x6 to resize all to the most common size" in error
    assert len(error.strip().splitlines()) == 1


def test_a_folder_is_compared_and_what_was_found_is_said(faces, capsys):
    words = ["compare", "faces", "--images", "8x6", "--methods", "gtda,lda", *QUICK]
    assert run(*words, "--json", "a.json", "--save", "m.nf") == 0
    said = capsys.readouterr().err
    assert "faces: 36 rows of 8 × 6, 48 features, 3 classes (12 rows each)." in said
    assert "36 images of 8 × 6 pixels, in gray (--images 8x6x3 keeps colors)" in said
    assert (
        "1 file in 'faces' is skipped because the extension is not supported: 'ann/notes.txt'"
        in said
    )
    assert "'dan' in 'faces' has no images and is not used as a class." in said
    document = json.loads((faces.parent / "a.json").read_text())
    assert {m["name"]: m["status"] for m in document["methods"]}["gtda"] == "done"
    assert document["tensors"]["gtda"]["shape"] == [8, 6]
    assert all(name.endswith(".png") for name in document["rows"]["names"].values())
    assert (faces.parent / "report.html").stat().st_size < 5_000_000
    step = shlex.split(document["next"][-1]["command"])[1:]
    assert step == ["predict", "m.nf", "NEW", "--images", "8x6"]


def test_gtda_is_compared_where_rows_are_images_and_it_is_said_why(faces, capsys):
    words = ["compare", "faces", "--images", "8x6", "--without", "lmnn", *QUICK]
    assert run(*words, "--json", "a.json") == 0
    said = capsys.readouterr().err
    assert "GTDA is compared too, since rows are images of 8 × 6" in said
    names = [m["name"] for m in json.loads((faces.parent / "a.json").read_text())["methods"]]
    assert {"lda", "rca", "gtda"} <= set(names)
    # What the images do not have is not promised.
    assert "the folds say" in said


@pytest.mark.parametrize("method", ["gtda", "gta", "lda"])
def test_a_model_of_pictures_tells_new_ones(faces, capsys, method):
    words = ["fit", "faces", "--images", "8x6", "--method", method, "-k", "1", "--save", "m.nf"]
    assert run(*words) == 0
    assert "their IDs from 'file'" in capsys.readouterr().out
    # New pictures are resized to what the model was fitted to, without being asked.
    assert run("predict", "m.nf", "new") == 0
    found = read(capsys.readouterr().out)
    assert len(found) == 12
    assert found[0]["file"].startswith("ann/") and found[0]["folder"] == "ann"
    assert np.mean([row["label"] == row["folder"] for row in found]) > 0.7
    assert all(row["neighbors"].endswith(".png") for row in found)
    assert run("predict", "m.nf", "new", "--out", "p.csv") == 0
    assert "labels differ from 'folder' in the file" in capsys.readouterr().out
    assert run("neighbors", "m.nf", "new", "-k", "2") == 0
    near = read(capsys.readouterr().out)
    assert len(near) == 24 and near[0]["id"].endswith(".png")
    assert run("transform", "m.nf", "new", "--out", "t.csv") == 0
    assert run("show", "m.nf") == 0
    assert "48: 8 × 6" in capsys.readouterr().out


def test_a_classifier_of_tensors_is_fitted_asked_and_shown(faces, capsys):
    words = ["fit", "faces", "--images", "8x6", "--method", "stm", "--save", "m.nf"]
    assert run(*words) == 0
    capsys.readouterr()
    assert run("predict", "m.nf", "new") == 0
    found = read(capsys.readouterr().out)
    assert len(found) == 12
    assert np.mean([row["label"] == row["folder"] for row in found]) > 0.7
    assert run("show", "m.nf") == 0
    said = capsys.readouterr().out
    assert "STM" in said and "48: 8 × 6" in said
    # It has no distance, and says so instead of failing.
    assert run("neighbors", "m.nf", "new") == 2
    assert run("transform", "m.nf", "new", "--out", "t.csv") == 2
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 2 and all("STM" in line for line in errors)


@pytest.mark.parametrize(
    ("place", "wanted"),
    [
        (0, "within_weight=0.1 --then lda"),
        (1, "within_weight=0.1 --then none"),
        (3, "within_weight=1.0 --then lda"),
    ],
)
def test_the_command_that_is_printed_means_one_setting(faces, capsys, place, wanted):
    """It says whether an LDA follows, and fits no other setting."""
    (method,) = learners("gtda", tensor_shape=(8, 6), then="auto")
    words = ["compare", "faces", "--images", "8x6"]
    options = cli._parser().parse_args(words)
    options.argv = ["nearfar", *words]
    words = fit_words(options, Chosen(method, method.settings[place], 1), "fit")[1:]
    assert set(wanted.split()) <= set(words) and words[2:4] == ["--images", "8x6"]
    assert run(*words, "--save", "m.nf") == 0
    model = nearfar.load("m.nf")
    assert ("after" in model.named_steps) is ("lda" in wanted)
    assert (
        model.named_steps["learner"].within_weight == method.settings[place].estimator.within_weight
    )


def test_pictures_without_labels_can_be_asked_about_and_not_compared(faces, capsys):
    (faces.parent / "loose").mkdir()
    for k, path in enumerate(sorted((faces.parent / "new").rglob("*.png"))):
        (faces.parent / "loose" / f"{k}.png").write_bytes(path.read_bytes())
    assert run("compare", "loose", "--images", "8x6", *QUICK) == 2
    assert "Put the images of each class into a subfolder" in capsys.readouterr().err
    assert run("fit", "faces", "--images", "8x6", "--method", "raw", "--save", "m.nf") == 0
    capsys.readouterr()
    assert run("predict", "m.nf", "loose") == 0
    found = read(capsys.readouterr().out)
    assert len(found) == 12 and "folder" not in found[0]


@pytest.mark.parametrize("text", ["8", "8x0", "8x6x", "big"])
def test_a_shape_that_is_none_is_refused(faces, capsys, text):
    with pytest.raises(SystemExit):
        run("compare", "faces", "--images", text)
    assert (
        f"expected HxW or HxWxC, for example 28x28 or 28x28x3; got {text!r}"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--images", "8x6x2"], "--images must be None, or (height, width)"),
        (["--target", "who"], "a folder of images has no columns. Its labels are the names"),
        (["--groups", "who"], "a folder of images has no columns"),
        (["--images", "8x6", "--set-id", "who"], "--images is for rows of a table"),
    ],
)
def test_what_a_folder_cannot_be_asked_is_said(faces, capsys, words, why):
    assert run("compare", "faces", *words, *QUICK) == 2
    assert why in capsys.readouterr().err


def test_a_broken_picture_is_named_in_one_line(faces, capsys):
    (faces / "bob" / "broken.jpg").write_bytes(b"\xff\xd8 and no more")
    assert run("compare", "faces", "--images", "8x6", *QUICK) == 2
    error = capsys.readouterr().err.strip()
    assert "Image 'bob/broken.jpg' cannot be read" in error and "\n" not in error


def test_one_class_is_refused(here, capsys):
    (here / "faces" / "ann").mkdir(parents=True)
    for k in range(12):
        Image.fromarray(as_pixels(stripes(12)[0])[k]).save(here / "faces" / "ann" / f"{k}.png")
    assert run("compare", "faces", *QUICK) == 2
    assert "class" in capsys.readouterr().err


def test_a_folder_with_the_name_of_a_built_in_dataset_is_reported(here, capsys):
    (here / "iris" / "ann").mkdir(parents=True)
    Image.fromarray(as_pixels(stripes(12)[0])[0]).save(here / "iris" / "ann" / "1.png")
    assert run("fit", "iris", "--method", "raw", "-k", "1", "--save", "m.nf") == 0
    assert "For the images in the folder, pass ./iris." in capsys.readouterr().err


# Rows of numbers that are images


def test_columns_of_a_table_are_images_by_their_names(table, capsys):
    shaped = ["--target", "who", "--drop", "number", "--images", "8x6"]
    assert run("fit", "faces.csv", *shaped, "--method", "gtda", "-k", "1", "--save", "m.nf") == 0
    said = capsys.readouterr().err
    assert "Left out: column 'p0'" not in said  # a blank pixel stays in its place
    # Other columns may stand between, and in another order.
    frame = table.drop(columns="who")[[*reversed(table.columns.drop("who"))]]
    frame.to_csv("new.csv", index=False)
    assert run("predict", "m.nf", "new.csv") == 0
    assert [row["label"] for row in read(capsys.readouterr().out)] == table["who"].tolist()


def test_arrays_keep_their_shape_for_tensors_and_are_flat_for_others(here, capsys):
    images, y = stripes(60, shape=(6, 5, 4))
    np.savez("a.npz", X=images, y=y)
    words = ["compare", "a.npz", "--methods", "gta,lda", *QUICK, "--json", "a.json"]
    assert run(*words) == 0
    said = capsys.readouterr().err
    assert "a.npz: 60 rows of 6 × 5 × 4, 120 features" in said
    document = json.loads((here / "a.json").read_text())
    assert {m["status"] for m in document["methods"]} == {"done"}
    assert document["tensors"]["gta"]["shape"] == [6, 5, 4]
    np.savez("turned.npz", X=images.transpose(0, 2, 1, 3), y=y)
    assert (
        run("fit", "a.npz", "--method", "gta", "--then", "none", "-k", "1", "--save", "m.nf") == 0
    )
    assert run("predict", "m.nf", "turned.npz") == 2
    assert "turned.npz has rows of shape 5×6×4; m.nf needs 6×5×4." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--images", "9x9"], "--images 9x9 means 81 numbers, but the rows of faces.csv have"),
        (["--images", "8x6"], "have 49. Drop the other columns with --drop"),
        (["--methods", "tensors"], "takes tensors, and these rows have no shape: say it with"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused(table, capsys, words, why):
    assert run("compare", "faces.csv", "--target", "who", *words, *QUICK) == 2
    assert why in capsys.readouterr().err


def test_another_shape_than_that_of_the_array_is_refused(here, capsys):
    np.savez("a.npz", X=stripes(60, shape=SHAPE)[0], y=stripes(60)[1])
    assert run("compare", "a.npz", "--images", "6x8", *QUICK) == 2
    assert "--images 6x8: the rows of a.npz have the shape 8x6." in capsys.readouterr().err


# Embeddings


@pytest.mark.parametrize("method", ["gta", "gtda"])
def test_tensors_are_embedded_in_so_many_coordinates(faces, capsys, method):
    words = ["embed", "faces", "--images", "8x6", "--method", method, "--csv", "a.csv"]
    assert run(*words, "--save", "e.nf") == 0
    said = capsys.readouterr().err
    assert "The modes keep 2 × 1 coordinates" in said or "The modes keep 1 × 2" in said
    rows = read((faces.parent / "a.csv").read_text())
    assert len(rows) == 36 and {"file", "folder", "component_0", "component_1"} == set(rows[0])
    assert run("transform", "e.nf", "new", "--out", "t.csv") == 0
    assert len(read((faces.parent / "t.csv").read_text())) == 12


def test_embedding_tensors_needs_a_shape_and_gtda_labels(table, capsys):
    assert run("embed", "faces.csv", "--method", "gta", "--target", "who") == 2
    assert "takes tensors, and the rows of faces.csv have no shape" in capsys.readouterr().err
    words = ["embed", "faces.csv", "--images", "8x6", "--drop", "number", "--drop", "who"]
    assert run(*words, "--method", "gtda") == 2
    assert "--method gtda learns from labels" in capsys.readouterr().err

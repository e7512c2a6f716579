"""Walkers, tensors of low rank, and folders of silhouettes."""

import importlib

import numpy as np
import pytest
from scipy.io import savemat
from scipy.ndimage import label

import nearfar.extras
from nearfar.datasets import load_gait, make_low_rank_tensors, make_walkers

Image = pytest.importorskip("PIL.Image")


def test_walkers_look_like_silhouettes():
    sequences, ids, periods = make_walkers(4, 2, random_state=0)
    assert sequences.shape == (8, 70, 64, 44) and sequences.dtype == np.uint8
    assert set(np.unique(sequences)) == {0, 1}
    assert ids.tolist() == [0, 0, 1, 1, 2, 2, 3, 3] and periods.dtype.kind == "i"
    for frames in sequences:
        area = frames.mean(axis=(1, 2))
        assert (area > 0.1).all() and (area < 0.4).all()
        for frame in frames[::10]:
            pieces, _ = label(frame)
            largest = np.bincount(pieces.ravel())[1:].max()
            assert largest > 0.95 * frame.sum(), "nearly all of a walker hangs together"
            rows = np.flatnonzero(frame.any(axis=1))
            assert rows[0] < 12 and rows[-1] > 57, "from top to bottom"
        # Legs move, the trunk hardly does.
        moves = frames.std(axis=0)
        assert moves[40:].mean() > 1.5 * moves[15:25, 15:30].mean()


def test_walkers_repeat_and_differ_more_between_subjects():
    sequences, ids, periods = make_walkers(6, 2, random_state=2)
    again = make_walkers(6, 2, random_state=2)
    np.testing.assert_array_equal(sequences, again[0])
    assert not np.array_equal(sequences, make_walkers(6, 2, random_state=3)[0])
    means = np.array([s[: 2 * p].mean(axis=0) for s, p in zip(sequences, periods, strict=True)])
    D = np.linalg.norm((means[:, None] - means).reshape(12, 12, -1), axis=2)
    own = D[ids[:, None] == ids][D[ids[:, None] == ids] > 0].mean()
    assert own < 0.75 * D[ids[:, None] != ids].mean()
    # A cycle later a walker looks the same but for the ragged outline.
    frames, period = sequences[0].astype(float), periods[0]
    assert np.abs(frames[period:] - frames[:-period]).mean() < 0.04
    half = period // 2
    assert np.abs(frames[half // 2 :] - frames[: -(half // 2)]).mean() > 0.06


def test_conditions_change_what_they_say():
    kinds = ["", "view", "shoe", "surface", "briefcase", "clothing", "view+briefcase"]
    sequences, _, _ = make_walkers(5, 7, random_state=0, conditions=kinds)
    means = sequences.reshape(5, 7, 70, 64, 44).mean(axis=(0, 2))
    change = dict(zip(kinds, means - means[0], strict=True))
    assert change["briefcase"][30:48].sum() > 20, "a thing beside the thigh"
    assert change["clothing"][36:48].sum() > 15, "a coat over the legs"
    assert change["shoe"][58:].sum() > 0.5
    assert change["surface"][60:].sum() < -1, "feet sink in"
    widest = [np.flatnonzero(m.max(axis=0) > 0.05).size for m in (means[0], means[1])]
    assert widest[1] < widest[0], "steps look shorter from half in front"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"n_subjects": 0}, "n_subjects=0"),
        ({"shape": (4, 4)}, "shape"),
        ({"conditions": ["", "brifcase"]}, "Did you mean 'briefcase'"),
        ({"conditions": [""]}, "one entry for each of n_sequences=2"),
    ],
)
def test_bad_walkers_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        make_walkers(**settings)


def test_tensors_of_low_rank_are_what_the_formula_says():
    X, y, X_test, y_test = make_low_rank_tensors(noise=0, random_state=0)
    assert X.shape == X_test.shape == (120, 24, 18)
    assert y.tolist() == np.repeat(np.arange(20), 6).tolist() == y_test.tolist()
    # Without noise a class is one matrix, and all lie in a space of 4 rows and 3 columns.
    np.testing.assert_allclose(X, X[6 * y])
    np.testing.assert_allclose(X, X_test)
    assert np.linalg.matrix_rank(X.transpose(1, 0, 2).reshape(24, -1)) == 4
    assert np.linalg.matrix_rank(X.transpose(2, 0, 1).reshape(18, -1)) == 3
    # Orthonormal factors: norms are those of cores of 12 standard normal numbers.
    assert np.mean(X**2) * 24 * 18 == pytest.approx(12, rel=0.25)
    noisy = make_low_rank_tensors(noise=0.5, random_state=0)[0]
    assert (noisy - X).std() == pytest.approx(0.5, rel=0.02)


def test_nuisance_has_rank_three_in_every_mode():
    settings = {"noise": 0.0, "random_state": 1, "n_classes": 4, "n_train": 20}
    clean = make_low_rank_tensors(**settings)[0]
    rest = make_low_rank_tensors(**settings, nuisance=2.0)[0] - clean
    for mode in (1, 2):
        unfolded = np.moveaxis(rest, mode, 0).reshape(rest.shape[mode], -1)
        assert np.linalg.matrix_rank(unfolded) == 3
    assert np.linalg.matrix_rank(rest.reshape(len(rest), -1)) == 3
    assert np.mean(rest**2) * 24 * 18 == pytest.approx(12, rel=0.5)


def test_other_orders_and_bad_shapes():
    X, *_ = make_low_rank_tensors(3, 2, 1, shape=(5, 4, 3), core=(2, 1, 3), noise=0, random_state=0)
    assert X.shape == (6, 5, 4, 3)
    ranks = [np.linalg.matrix_rank(np.moveaxis(X, m, 0).reshape(X.shape[m], -1)) for m in (1, 2, 3)]
    assert ranks == [2, 1, 3]
    for bad in ({"core": (4,)}, {"core": (25, 3)}, {"noise": -1}, {"n_train": 0}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            make_low_rank_tensors(**bad)


# ---------------------------------------------------------------------- folders


@pytest.fixture
def folder(tmp_path):
    sequences, ids, _ = make_walkers(2, 2, n_frames=11, shape=(16, 12))
    for k, frames in enumerate(sequences):
        place = tmp_path / f"s{ids[k]}" / f"walk{k % 2}"
        place.mkdir(parents=True)
        for t, frame in enumerate(frames):
            Image.fromarray(255 * frame).save(place / f"frame{t}.png")
    (tmp_path / "s0" / "walk0" / ".hidden.png").write_bytes(b"x")
    (tmp_path / "readme.txt").write_text("x")
    return tmp_path, sequences


def test_folders_of_frames_are_read_in_order(folder):
    place, sequences = folder
    found, ids = load_gait(place)
    assert ids.tolist() == ["s0", "s0", "s1", "s1"] and found[0].dtype == np.uint8
    np.testing.assert_array_equal(np.array(found), sequences)  # frame10 after frame9


def test_files_that_cannot_be_read_are_named(folder):
    place, _ = folder
    (place / "s1" / "walk0" / "frame3.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match="'s1/walk0/frame3.png' cannot be read as an image"):
        load_gait(place)
    Image.new("L", (5, 4)).save(place / "s1" / "walk0" / "frame3.png")
    with pytest.raises(ValueError, match="'s1/walk0/frame3.png' has 4×5 pixels, but .* 16×12"):
        load_gait(place)
    (place / "s1" / "walk0" / "frame3.png").unlink()
    (place / "s1" / "empty").mkdir()
    with pytest.raises(ValueError, match="'s1/empty' has no frames"):
        load_gait(place)
    (place / "s1" / "empty").rmdir()
    Image.new("L", (5, 4)).save(place / "s1" / "stray.png")
    with pytest.raises(ValueError, match="'s1/stray.png' is not in the folder of a sequence"):
        load_gait(place)


def test_folders_without_silhouettes_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no silhouettes"):
        load_gait(tmp_path)
    with pytest.raises(ValueError, match="does not exist"):
        load_gait(tmp_path / "nowhere")
    file = tmp_path / "a.txt"
    file.write_text("x")
    with pytest.raises(ValueError, match="is not a folder or a .mat file"):
        load_gait(file)


def test_mat_files_are_read_one_or_many(tmp_path):
    sequences, ids, _ = make_walkers(3, 2, n_frames=10, shape=(16, 12))
    for name, part in (("a", slice(0, 4)), ("b", slice(4, 6))):
        stored = np.transpose(sequences[part], (2, 3, 1, 0))  # height, width, frames, walks
        savemat(tmp_path / f"{name}.mat", {"fea3D": stored, "gnd": ids[part, None] + 1})
    found, who = load_gait(tmp_path)
    np.testing.assert_array_equal(np.array(found), sequences)
    assert who.tolist() == (ids + 1).tolist()
    found, who = load_gait(tmp_path / "b.mat")
    np.testing.assert_array_equal(np.array(found), sequences[4:])


def test_bad_mat_files_are_named(tmp_path):
    file = tmp_path / "walks.mat"
    file.write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match="'walks.mat' cannot be read"):
        load_gait(file)
    savemat(file, {"fea3D": np.ones((2, 2, 2, 2))})
    with pytest.raises(ValueError, match="'walks.mat' has no gnd"):
        load_gait(file)
    savemat(file, {"fea3D": np.ones((2, 2, 2, 2)), "gnd": np.ones((3, 1))})
    with pytest.raises(ValueError, match="'walks.mat': fea3D must contain numbers of shape"):
        load_gait(file)
    # The signature of version 7.3, which is HDF5.
    file.write_bytes(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + bytes(400))
    with pytest.raises(ValueError, match="'walks.mat' is a .mat file of version 7.3"):
        load_gait(file)


def test_pillow_is_asked_for_by_its_extra(folder, monkeypatch):
    def without(name):
        if name.startswith("PIL"):
            raise ModuleNotFoundError(f"No module named {name!r}", name="PIL")
        return importlib.import_module(name)

    monkeypatch.setattr(nearfar.extras, "import_module", without)
    with pytest.raises(ImportError, match=r"nearfar\[image\]"):
        load_gait(folder[0])

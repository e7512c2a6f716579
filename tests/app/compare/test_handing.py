"""Data for other processes: large arrays exist once, mapped files are handed on by name."""

import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

from nearfar.app.compare import handing
from nearfar.app.compare.folds import Problem
from nearfar.app.compare.handing import LARGE, mapped_bytes, pack
from nearfar.app.compare.methods import learners
from nearfar.app.compare.pool import ProcessPool
from nearfar.evaluation.measures import choose_measure

linux = pytest.mark.skipif(sys.platform != "linux", reason="asks the system what is mapped")


def large(seed=0, shape=(600, 500)):
    return np.random.default_rng(seed).normal(size=shape)


def opened(thing, folder=None):
    parcel = pack(thing, folder)
    assert len(parcel.pickled) < LARGE
    return pickle.loads(pickle.dumps(parcel)).open()


def stored(path, array, **options):
    np.save(path, array)
    return np.load(path, mmap_mode="r", **options)


@pytest.mark.parametrize("named", [False, True])
def test_what_was_packed_comes_back(tmp_path, named):
    if not named and not hasattr(os, "memfd_create"):
        pytest.skip("files have names here")
    thing = {"a": large(), "b": [large(1).T, "text"], "small": np.arange(5)}
    found = opened(thing, tmp_path if named else None)
    np.testing.assert_array_equal(found["a"], thing["a"])
    np.testing.assert_array_equal(found["b"][0], thing["b"][0])
    np.testing.assert_array_equal(found["small"], thing["small"])
    # As an array of one's own: what is written to it, no other sees.
    found["a"][:] = 0
    assert found["a"].flags.writeable and thing["a"].any()


def test_frames_and_what_is_not_in_one_piece_are_taken_out_too(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(large(), columns=[f"c{i}" for i in range(500)])
    frame["text"] = "a"
    both = opened([frame, large()[::2, ::3]], tmp_path)
    pandas.testing.assert_frame_equal(both[0], frame)
    np.testing.assert_array_equal(both[1], large()[::2, ::3])


def test_nothing_large_needs_no_file(tmp_path):
    parcel = pack([np.arange(1000), "x"], tmp_path)
    assert parcel.file is None and not list(tmp_path.iterdir())
    assert pack(np.empty(0)).open().shape == (0,)


@linux
@pytest.mark.parametrize(
    "view",
    [
        lambda array: array,
        lambda array: np.asarray(array),
        lambda array: array[7:],
        lambda array: array[::-1, 3:490:2],
        lambda array: array.T,
        lambda array: array.reshape(-1, 4),
    ],
)
def test_a_mapped_file_is_handed_on_by_its_name(tmp_path, view):
    array = view(stored(tmp_path / "x.npy", large()))
    parcel = pack({"X": array})
    assert parcel.file is None and len(parcel.pickled) < 2000
    assert parcel.inodes == ((tmp_path / "x.npy").stat().st_ino,)
    found = parcel.open()["X"]
    np.testing.assert_array_equal(found, array)
    found[:] = 0  # its own
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), large())


@linux
def test_a_file_that_was_replaced_is_not_taken_for_the_one_that_is_mapped(tmp_path):
    array = stored(tmp_path / "x.npy", large())
    np.save(tmp_path / "y.npy", large(1))
    os.replace(tmp_path / "y.npy", tmp_path / "x.npy")
    np.testing.assert_array_equal(opened(array), large())
    (tmp_path / "x.npy").unlink()
    np.testing.assert_array_equal(opened(array), large())


def test_what_was_changed_in_memory_only_is_handed_on_as_changed(tmp_path):
    np.save(tmp_path / "x.npy", large())
    array = np.load(tmp_path / "x.npy", mmap_mode="c")
    array[0] = 7
    assert opened(array, tmp_path)[0].tolist() == [7.0] * 500


def test_without_memory_to_spare_the_file_lies_on_the_disk(monkeypatch):
    if not hasattr(os, "memfd_create"):
        pytest.skip("files have names here")
    monkeypatch.setattr(handing, "_free_memory", lambda: 0.0)
    np.testing.assert_array_equal(opened(large()), large())


def work(X):
    codes = np.arange(len(X)) % 2
    measure = choose_measure(None, np.arange(2), np.bincount(codes))
    return Problem(X, np.arange(2), codes, "passthrough", measure)


def started(problem, n=2):
    """A pool with workers that are ready, and what they told."""
    pool = ProcessPool(problem)
    for i in range(n):
        pool.start(learners({f"lda {i}": learners("lda")[0].settings[0].estimator})[0])
    events = dict(pool.next_event(100) for _ in range(n))
    assert {event["kind"] for event in events.values()} == {"ready"}
    return pool, events


def files(*folders):
    return {path for folder in folders for path in Path(folder).glob("**/*")}


@linux
def test_a_mapped_file_is_not_copied_for_the_workers(tmp_path, monkeypatch):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    empty = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float64, (26_000, 1000))
    del empty  # 208 MB, of which the disk holds a page
    X = np.load(tmp_path / "x.npy", mmap_mode="r")
    before = files("/dev/shm")
    pool, events = started(work(np.asarray(X)))
    try:
        assert pool._parcel.file is None
        made = files(temporary, "/dev/shm") - before
        assert max(path.stat().st_size for path in made) < LARGE
        assert all(event["base"] < 200e6 + 100e6 for event in events.values())
    finally:
        pool.close()
    assert not files(temporary)


@linux
def test_an_array_in_memory_exists_once_for_all_workers(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    X = large(shape=(6_000, 1000))
    pool, _ = started(work(X))
    try:
        (inode,) = pool._parcel.inodes
        assert max(path.stat().st_size for path in files(tmp_path)) < LARGE
        for process in pool._processes.values():
            entries = [
                line.split()
                for line in Path(f"/proc/{process.pid}/maps").read_text().splitlines()
                if line.split()[4] == str(inode)
            ]
            sizes = [[int(end, 16) for end in entry[0].split("-")] for entry in entries]
            assert sum(end - start for start, end in sizes) >= X.nbytes
        # The pages of the data are no worker's own.
        pool.give(
            "lda 0", "fold", {"train": np.arange(300), "test": np.arange(300, 600), "tuning": "k"}
        )
        event = pool.next_event(100)[1]
        assert mapped_bytes([inode], pool._processes["lda 0"].pid) > 600 * 1000 * 8 / 2
        assert event["kind"] == "done"
        os.kill(pool._processes["lda 1"].pid, 9)
        assert pool.next_event(100)[1]["kind"] == "died"
    finally:
        pool.close()
    assert not files(tmp_path)
    with pytest.raises(OSError):
        os.fstat(pool._parcel.file)

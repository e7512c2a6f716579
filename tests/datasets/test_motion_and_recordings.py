"""Clips and recordings as sets of vectors: flow, histograms, coefficients, folders."""

import sys

import numpy as np
import pytest
from scipy import ndimage
from scipy.io import wavfile
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import LeaveOneOut, cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from nearfar import Gaussians, Sets
from nearfar.datasets import (
    make_moving_shapes,
    make_sets,
    make_tones,
    mfcc,
    motion_histograms,
    read_clips,
    read_recordings,
    write_tones,
)
from nearfar.datasets.motion import (
    compute_otsu_threshold,
    compute_threshold,
    convert_to_gray,
    optical_flow,
)
from nearfar.datasets.recordings import resample
from nearfar.distributions import dissimilarity


def moving(down, right, n=6, seed=0, shape=(48, 64)):
    """Frames of a texture that moves by so many pixels each, without borders."""
    texture = np.random.default_rng(seed).normal(size=shape)
    spectrum = np.fft.fft2(ndimage.gaussian_filter(texture, 1.5, mode="wrap"))
    frames = [ndimage.fourier_shift(spectrum, (k * down, k * right)) for k in range(n)]
    return np.fft.ifft2(np.array(frames)).real


def inner(v):
    return v[:, 8:-8, 8:-8]


def left_one_out(sets, y, metric="bhattacharyya_riemann"):
    D = dissimilarity(Gaussians.from_sets(sets), metric=metric)
    return error_of(D, y)


def error_of(D, y):
    knn = KNeighborsClassifier(1, metric="precomputed")
    return 1 - cross_val_score(knn, D, y, cv=LeaveOneOut()).mean()


# ---------------------------------------------------------------------- flow


@pytest.mark.parametrize("motion", [(0, 0.5), (0.7, 0), (1, -1), (0, 3), (-2, 2), (4, 0)])
def test_flow_of_a_moving_texture_is_its_motion(motion):
    a, b = moving(*motion, n=2)
    v = inner(optical_flow(a, b))
    # The ridge makes flow a little too short.
    assert np.median(v, axis=(1, 2)) == pytest.approx(motion, abs=0.02 + 0.06 * np.hypot(*motion))
    # Right almost everywhere, so that directions can be counted.
    assert np.mean(np.hypot(v[0] - motion[0], v[1] - motion[1]) < 0.5) > 0.85


def test_flow_of_one_level_misses_what_the_pyramid_finds():
    a, b = moving(0, 6, n=2, shape=(96, 96))
    assert abs(np.median(inner(optical_flow(a, b))[1]) - 6) < 0.6
    assert abs(np.median(inner(optical_flow(a, b, n_levels=1))[1]) - 6) > 3


def test_flow_of_a_stack_is_that_of_its_images():
    frames = moving(1, 0.5, n=4)
    stack = optical_flow(frames[:-1], frames[1:])
    assert stack.shape == (2, 3, 48, 64)
    # Intensities are brought to one range for the stack: alike up to that.
    assert stack[:, 1] == pytest.approx(optical_flow(frames[1], frames[2]), abs=0.02)


def test_flow_is_zero_where_there_is_no_texture():
    blank = np.zeros((40, 40))
    assert not optical_flow(blank, blank).any()
    spot = blank.copy()
    spot[5:9, 5:9] = 1
    v = optical_flow(spot, np.roll(spot, 1, axis=1))
    assert np.abs(v[:, 25:, 25:]).max() < 1e-3 < 0.5 < v[1].max()


def test_flow_agrees_with_scikit_image():
    registration = pytest.importorskip("skimage.registration")
    a, b = moving(1.2, -0.6, n=2)
    theirs = registration.optical_flow_ilk(a.astype(np.float32) * 10, b.astype(np.float32) * 10)
    gap = inner(optical_flow(a, b) - theirs)
    assert np.median(np.hypot(*gap)) < 0.1


def test_flow_refuses_images_of_two_shapes():
    with pytest.raises(ValueError, match="must have the same shape"):
        optical_flow(np.zeros((5, 5)), np.zeros((5, 6)))


# ---------------------------------------------------------------------- histograms


@pytest.mark.parametrize(
    ("motion", "bin"), [((0, 1), 0), ((-1, 0), 1), ((0, -1), 2), ((1, 0), 3)]
)  # right, up, left, down
def test_bins_go_counter_clockwise_from_the_right(motion, bin):
    sums = motion_histograms(moving(*motion), blocks=(1, 1), threshold=0.5).sum(axis=0)
    assert sums.argmax() == bin and sums[bin] > 0.95 * sums.sum()


@pytest.mark.parametrize("tilt", [-15, 15])
def test_first_sector_has_its_middle_at_the_right(tilt):
    # Sectors that began at 0° would put one of the tilts into the last of eight.
    angle = np.deg2rad(tilt)
    clip = moving(-1.5 * np.sin(angle), 1.5 * np.cos(angle))
    options = {"bins": 8, "blocks": (1, 1), "threshold": 0.5}
    sums = motion_histograms(clip, **options).sum(axis=0)
    assert sums[0] > 0.8 * sums.sum()
    clip = moving(-1.5 * np.sin(angle + np.pi / 4), 1.5 * np.cos(angle + np.pi / 4))
    assert motion_histograms(clip, **options).sum(axis=0).argmax() == 1


@pytest.mark.parametrize(("bins", "blocks"), [(4, (3, 3)), (4, (4, 4)), (8, (3, 3)), (8, (4, 4))])
def test_width_is_bins_times_blocks_and_length_one_less_than_frames(bins, blocks):
    vectors = motion_histograms(moving(0, 1), bins=bins, blocks=blocks)
    assert vectors.shape == (5, bins * blocks[0] * blocks[1])


def test_blocks_are_in_reading_order():
    clip = np.zeros((4, 30, 44))
    for k in range(4):  # a spot that moves down in the second of three columns, last row of two
        clip[k, 20 + k : 24 + k, 20:24] = 1
    sums = motion_histograms(clip, blocks=(2, 3)).sum(axis=0).reshape(2, 3, 4)
    assert np.unravel_index(sums.argmax(), sums.shape) == (1, 1, 3)
    assert sums[1, 1, 3] > 0.9 * sums.sum()


def test_blocks_that_do_not_divide_the_frame_hold_all_pixels():
    vectors = motion_histograms(moving(0, 1, shape=(31, 41)), blocks=(4, 3), threshold=0.0)
    assert (vectors.sum(axis=1) == 31 * 41).all()


def test_counts_ignore_how_long_vectors_are_unless_asked():
    slow, fast = moving(0, 1), moving(0, 2)
    options = {"blocks": (1, 1), "threshold": 0.3}
    counts = [motion_histograms(clip, **options).sum() for clip in (slow, fast)]
    sums = [motion_histograms(clip, magnitude=True, **options).sum() for clip in (slow, fast)]
    assert counts[1] / counts[0] == pytest.approx(1, abs=0.1)
    assert sums[1] / sums[0] == pytest.approx(2, abs=0.2)


def test_normalized_vectors_sum_to_one_and_still_frames_are_zero():
    clip = moving(0, 1, n=4)
    clip = np.concatenate([clip, clip[-1:]])
    plain = motion_histograms(clip)
    vectors = motion_histograms(clip, normalize="frame")
    assert vectors[:3].sum(axis=1) == pytest.approx(1)
    assert vectors[:3] * plain[:3].sum(axis=1, keepdims=True) == pytest.approx(plain[:3])
    assert not vectors[3].any() and not plain[3].any()


def test_threshold_drops_jitter():
    clips, _ = make_moving_shapes(1, motions=["right"], noise=0.02, random_state=0)
    everything = motion_histograms(clips[0], threshold=0.0).sum()
    assert everything == 19 * 36 * 48
    kept = {rule: motion_histograms(clips[0], threshold=rule) for rule in ("otsu", "mean", 0.5)}
    for vectors in kept.values():
        # The disc covers a tenth of the frame, and flow is seen some pixels around it.
        assert 0.05 * everything < vectors.sum() < 0.45 * everything
        right = vectors.reshape(-1, 9, 4).sum(axis=(0, 1))
        assert right[0] > 0.9 * right.sum()
    assert not motion_histograms(clips[0], threshold=100.0).any()


@pytest.mark.parametrize("rule", ["otsu", "mean"])
@pytest.mark.parametrize(("speed", "period"), [(1, 12), (1.5, 15), (2, 20)])
def test_adaptive_thresholds_keep_the_motion_of_a_whole_frame(rule, speed, period):
    columns, time = np.arange(60), np.arange(12)[:, None]
    right, left = (
        np.sin(2 * np.pi * (columns - sign * speed * time) / period) > 0 for sign in (1, -1)
    )
    halves = [np.repeat(half[:, None], 30, axis=1) for half in (right, left)]
    clip = np.concatenate(halves, axis=1).astype(float)
    for axes, sideways in ((0, 1, 2), [0, 2]), ((0, 2, 1), [1, 3]):
        sums = motion_histograms(clip.transpose(axes), blocks=(1, 1), threshold=rule).sum(axis=0)
        assert sums[sideways].sum() > 0.8 * sums.sum()
        assert sums[sideways].min() > 0.35 * sums.sum()


@pytest.mark.parametrize("rule", ["otsu", "mean"])
def test_adaptive_thresholds_do_not_count_noise_in_a_still_clip(rule):
    random = np.random.RandomState(0)
    scene = ndimage.gaussian_filter(random.normal(size=(48, 60)), 2)
    still = scene / scene.std() + 0.03 * random.normal(size=(8, 48, 60))
    assert motion_histograms(still, threshold=rule).sum() < 0.02 * 7 * 48 * 60
    assert not motion_histograms(np.broadcast_to(scene, (4, 48, 60)), threshold=rule).any()


def test_otsu_has_the_least_variance_within_both_groups():
    random = np.random.default_rng(0)
    values = np.concatenate([random.normal(0, 1, 300), random.normal(6, 2, 100)])

    def within(cut):
        groups = values[values < cut], values[values >= cut]
        return sum(len(group) * group.var() for group in groups)

    best = min(within(cut) for cut in np.sort(values)[1:])
    assert within(compute_otsu_threshold(values)) <= 1.005 * best


@pytest.mark.parametrize("change", [lambda x: 1e8 * x, lambda x: 1e-8 * x, lambda x: x + 5])
def test_units_of_intensity_do_not_matter(change):
    clip = moving(0.5, 1)
    gap = motion_histograms(change(clip)) - motion_histograms(clip)
    assert np.abs(gap).sum() <= 0.01 * motion_histograms(clip).sum()


def test_every_frame_is_normalized_by_itself():
    small, large = moving(0, 1, n=3)[:, :12, :12], moving(0, 1, n=3)
    # Texture moves in a corner only, then everywhere.
    clip = np.concatenate([np.zeros((3, *large.shape[1:])), large])
    clip[:3, :12, :12] = small
    counts = motion_histograms(clip, threshold=0.5)
    totals = counts.sum(axis=1, keepdims=True)
    assert totals.min() < 0.5 * totals.max()
    wanted = counts / np.maximum(totals, 1)
    np.testing.assert_allclose(motion_histograms(clip, threshold=0.5, normalize="frame"), wanted)


def test_the_mean_threshold_is_one_deviation_above_the_mean():
    norms = np.array([[0.0, 1.0], [2.0, 5.0]], np.float32)
    assert compute_threshold(norms, "mean") == pytest.approx(norms.mean() + norms.std())
    assert compute_threshold(norms, 0.25) == 0.25


def test_grey_is_what_the_eye_sees_of_colours():
    pixels = np.zeros((2, 2, 2, 3), np.uint8)
    pixels[0, 0, 0, 0] = pixels[0, 0, 1, 1] = pixels[0, 1, 0, 2] = 255
    pixels[0, 1, 1] = 255
    gray = convert_to_gray(pixels)[0]
    np.testing.assert_allclose(gray.ravel(), [0.299, 0.587, 0.114, 1], atol=1e-6)
    with_alpha = np.concatenate([pixels, np.full((2, 2, 2, 1), 9, np.uint8)], axis=-1)
    np.testing.assert_array_equal(convert_to_gray(with_alpha)[0], gray)


def test_colour_frames_are_made_grey():
    gray = (255 * (moving(0, 1) > 0)).astype(np.uint8)
    color = np.repeat(gray[..., None], 3, axis=-1)
    expected = motion_histograms(gray)
    assert np.abs(motion_histograms(color) - expected).sum() <= 0.01 * expected.sum()


def test_still_clip_gives_zero_vectors():
    assert not motion_histograms(np.full((3, 20, 20), 7)).any()


@pytest.mark.parametrize(
    ("frames", "options", "message"),
    [
        (np.zeros((1, 9, 9)), {}, "at least two frames.*got 1 frame"),
        (np.zeros((9, 9)), {}, r"shape \(t, height, width\).*got \(9, 9\)"),
        (np.zeros((3, 9, 9, 2)), {}, "3\\) for color"),
        (np.array([["a"]]), {}, "must contain numbers"),
        (np.stack([np.zeros((9, 9)), np.full((9, 9), np.nan)]), {}, "Frame 1 contains NaN"),
        (
            np.zeros((3, 9, 9)),
            {"blocks": (10, 2)},
            "more than one block per pixel for frames of 9×9",
        ),
        (np.zeros((3, 9, 9)), {"blocks": 3}, "blocks must be two integers"),
        (np.zeros((3, 9, 9)), {"bins": 1}, "bins must be"),
        (np.zeros((3, 9, 9)), {"threshold": "half"}, "threshold must be"),
        (np.zeros((3, 9, 9)), {"threshold": -1.0}, "threshold must be"),
        (np.zeros((3, 9, 9)), {"normalize": "all"}, "normalize must be"),
    ],
)
def test_bad_clips_and_options_are_named(frames, options, message):
    with pytest.raises(ValueError, match=message):
        motion_histograms(frames, **options)


def test_frames_are_not_changed():
    clip = moving(0, 1)
    clip.flags.writeable = False
    motion_histograms(clip)


# ---------------------------------------------------------------------- folders of clips


def write_clips(folder, clips, labels, names):
    for clip, label, name in zip(clips, labels, names, strict=True):
        place = folder if label is None else folder / label
        place.mkdir(parents=True, exist_ok=True)
        np.save(place / name, clip)


def test_folder_gives_labels_and_names_in_natural_order(tmp_path):
    clips = [moving(0, 1, n=3, seed=k, shape=(24, 24)) for k in range(4)]
    names = ["take10.npy", "take9.npy", "b.npy", "a.npy"]
    write_clips(tmp_path, clips, ["walk", "walk", "jump", "walk"], names)
    write_clips(tmp_path, clips[:2], [".hidden", "walk"], ["c.npy", "._take9.npy"])
    sets = read_clips(tmp_path)
    assert sets.names.tolist() == ["jump/b.npy", "walk/a.npy", "walk/take9.npy", "walk/take10.npy"]
    assert sets.labels.tolist() == ["jump", "walk", "walk", "walk"]
    for k, source in enumerate([2, 3, 1, 0]):
        assert np.array_equal(sets[k], motion_histograms(clips[source]))


def test_label_is_the_first_of_nested_folders_and_none_without_any(tmp_path):
    clip = moving(0, 1, n=3, shape=(24, 24))
    write_clips(tmp_path / "nested", [clip], ["run/person1"], ["a.npy"])
    nested = read_clips(tmp_path / "nested")
    assert nested.labels.tolist() == ["run"] and nested.names.tolist() == ["run/person1/a.npy"]
    write_clips(tmp_path / "flat", [clip], [None], ["a.npy"])
    assert read_clips(tmp_path / "flat").labels is None


def test_options_of_the_folder_reach_the_histograms(tmp_path):
    clip = moving(0, 1, shape=(24, 32))
    write_clips(tmp_path, [clip], [None], ["a.npy"])
    options = {"bins": 8, "blocks": (2, 2), "threshold": 0.4, "magnitude": True}
    found = read_clips(tmp_path, normalize="frame", **options)
    assert np.array_equal(found[0], motion_histograms(clip, normalize="frame", **options))


def test_cut_clips_and_cuboids_are_parts_of_the_whole(tmp_path):
    clips = [moving(0, 1, n=n, shape=(24, 24)) for n in (12, 7)]
    write_clips(tmp_path, clips, ["x", "y"], ["a.npy", "b.npy"])
    whole = read_clips(tmp_path, blocks=(2, 2))
    cut = read_clips(tmp_path, blocks=(2, 2), vectors_per_set=4)
    assert cut.sizes.tolist() == [4, 4, 3, 3, 3]
    assert np.array_equal(cut.X, whole.X)
    assert cut.names[1] == "x/a.npy[4:8]" and cut.labels.tolist() == ["x"] * 3 + ["y"] * 2
    cuboids = read_clips(tmp_path, blocks=(2, 2), vectors_per_set=4, cuboids=True)
    assert cuboids.shape == (20, 4)
    assert cuboids.names[6] == "x/a.npy[4:8](1,0)"
    assert np.array_equal(cuboids[6], cut[1][:, 8:12])


def test_threads_change_nothing(tmp_path):
    clips = [moving(0, 1, n=3, seed=k, shape=(24, 24)) for k in range(3)]
    write_clips(tmp_path, clips, [None] * 3, ["a.npy", "b.npy", "c.npy"])
    assert read_clips(tmp_path, n_jobs=2) == read_clips(tmp_path)


def test_shrunk_clips_are_means_of_squares(tmp_path):
    clip = moving(0, 2, shape=(49, 64))
    write_clips(tmp_path, [clip], [None], ["a.npy"])
    means = clip[:, :48].reshape(6, 24, 2, 32, 2).mean(axis=(2, 4))
    gap = read_clips(tmp_path, shrink=2)[0] - motion_histograms(means)
    assert np.abs(gap).sum() <= 4


def test_files_of_other_kinds_are_passed_over_with_a_warning(tmp_path):
    write_clips(tmp_path, [moving(0, 1, n=3)], [None], ["a.npy"])
    (tmp_path / "readme.txt").write_text("x")
    with pytest.warns(
        UserWarning, match=r"1 file in .* is skipped because .*: 'readme.txt'"
    ) as caught:
        assert len(read_clips(tmp_path)) == 1
    assert caught[0].filename == __file__


def test_bad_folders_and_clips_are_named(tmp_path):
    with pytest.raises(ValueError, match="is not a folder"):
        read_clips(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="Found no clips in .*Supported: .*.avi"):
        read_clips(tmp_path)
    write_clips(tmp_path, [moving(0, 1, n=3)] * 2, ["walk", None], ["a.npy", "loose.npy"])
    with pytest.raises(ValueError, match="'loose.npy' has no label"):
        read_clips(tmp_path)
    (tmp_path / "loose.npy").unlink()
    np.save(tmp_path / "walk" / "short.npy", np.zeros((1, 9, 9)))
    with pytest.raises(ValueError, match="Clip 'walk/short.npy': .*two frames"):
        read_clips(tmp_path)
    (tmp_path / "walk" / "short.npy").write_bytes(b"no array")
    with pytest.raises(ValueError, match="Clip 'walk/short.npy'"):
        read_clips(tmp_path)
    np.save(tmp_path / "walk" / "short.npy", np.array([{}]))
    with pytest.raises(ValueError, match="Clip 'walk/short.npy'"):  # pickles are not opened
        read_clips(tmp_path)
    with pytest.raises(ValueError, match="vectors_per_set must be"):
        read_clips(tmp_path, vectors_per_set=1)
    with pytest.raises(ValueError, match="read_clips: bins must be"):
        read_clips(tmp_path, bins=0)


def test_videos_without_imageio_name_the_extra(tmp_path, monkeypatch):
    (tmp_path / "a.avi").write_bytes(b"x")
    monkeypatch.setitem(sys.modules, "imageio", None)
    monkeypatch.delitem(sys.modules, "imageio.v3", raising=False)
    with pytest.raises(ImportError, match=r"pip install 'nearfar\[video\]'"):
        read_clips(tmp_path)


def as_bytes(clip):
    return (255 * (clip - clip.min()) / np.ptp(clip)).astype(np.uint8)


def test_folders_of_images_are_clips_with_frames_in_natural_order(tmp_path):
    imageio = pytest.importorskip("imageio.v3")
    clip = as_bytes(moving(0, 1, n=12))
    (tmp_path / "walk" / "one").mkdir(parents=True)
    for k, frame in enumerate(clip):  # frame 10 comes after frame 9
        imageio.imwrite(tmp_path / "walk" / "one" / f"frame{k}.png", frame)
    sets = read_clips(tmp_path)
    assert sets.names.tolist() == ["walk/one"] and sets.labels.tolist() == ["walk"]
    assert np.array_equal(sets[0], motion_histograms(clip))
    imageio.imwrite(tmp_path / "walk" / "one" / "frame99.png", clip[0, :20])
    with pytest.raises(ValueError, match="Clip 'walk/one': frame99.png has 20×64 pixels"):
        read_clips(tmp_path)
    (tmp_path / "walk" / "one" / "frame99.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match="Clip 'walk/one': frame99.png cannot be read"):
        read_clips(tmp_path)


@pytest.mark.parametrize("suffix", [".avi", ".gif"])
def test_videos_are_clips(tmp_path, suffix):
    imageio = pytest.importorskip("imageio.v3")
    pytest.importorskip("av")
    options = {"plugin": "pyav", "codec": "mpeg4"} if suffix == ".avi" else {"plugin": "pillow"}
    for name, motion in {"right": (0, 1), "up": (-1, 0)}.items():
        clip = as_bytes(moving(*motion))
        (tmp_path / name).mkdir()
        frames = np.repeat(clip[..., None], 3, axis=-1) if suffix == ".avi" else clip
        imageio.imwrite(tmp_path / name / f"clip{suffix}", frames, **options)
    sets = read_clips(tmp_path, blocks=(1, 1))
    assert sets.labels.tolist() == ["right", "up"]
    assert [rows.sum(axis=0).argmax() for rows in sets] == [0, 1]
    (tmp_path / "up" / f"bad{suffix}").write_bytes(b"no video")
    with pytest.raises(ValueError, match=f"Clip 'up/bad{suffix}'"):
        read_clips(tmp_path)


def test_moving_shapes_are_told_apart_by_their_motion():
    clips, y = make_moving_shapes(6, random_state=0)
    sets = Sets.from_list([motion_histograms(clip) for clip in clips])
    assert left_one_out(sets, y) <= 0.3  # by chance 0.75
    # In one block it does not matter where the shape was.
    only = Sets.from_list([motion_histograms(clip, blocks=(1, 1)) for clip in clips])
    assert left_one_out(only, y) <= 0.1


def test_cuboids_of_one_block_are_one_cluster(tmp_path):
    # After the second experiment of chapter 6: four blocks, each with a motion of its own.
    top = [moving(0, 1, n=41, seed=0), moving(1, 0, n=41, seed=1)]
    bottom = [moving(-1, 0, n=41, seed=2), moving(0, -1, n=41, seed=3)]
    video = np.concatenate([np.concatenate(half, axis=2) for half in (top, bottom)], axis=1)
    write_clips(tmp_path, [video], [None], ["video.npy"])
    options = {"bins": 8, "blocks": (2, 2), "threshold": 0.5}
    sets = read_clips(tmp_path, vectors_per_set=10, cuboids=True, **options)
    assert sets.shape == (16, 8)
    strongest = [rows.mean(axis=0).argmax() for rows in sets]
    assert strongest == [0, 6, 2, 4] * 4
    found = KMeans(4, random_state=0).fit_predict(Gaussians.from_sets(sets).means)
    assert adjusted_rand_score(found, strongest) == 1


# ---------------------------------------------------------------------- recordings


def test_mfcc_has_a_row_for_each_whole_frame_and_is_repeatable():
    pytest.importorskip("kaldi_native_fbank")
    wave = make_tones(1, tones=["trill"], random_state=0)[0][0][:4000]
    vectors = mfcc(wave, 8000)
    assert vectors.shape == (1 + (4000 - 200) // 80, 13)
    assert np.array_equal(vectors, mfcc(wave, 8000))
    assert mfcc(wave, 8000, n_coefficients=5, window=0.05, step=0.02).shape == (23, 5)


def test_first_coefficient_is_the_log_energy_of_the_frame():
    pytest.importorskip("kaldi_native_fbank")
    wave = make_tones(1, tones=["rising"], random_state=0)[0][0] + 0.1
    starts = np.arange(0, len(wave) - 200 + 1, 80)
    frames = 32768 * np.stack([wave[start : start + 200] for start in starts])
    frames -= frames.mean(axis=1, keepdims=True)
    assert mfcc(wave, 8000)[:, 0] == pytest.approx(np.log((frames**2).sum(axis=1)), abs=1e-3)


def test_louder_recordings_differ_in_the_first_coefficient_only():
    pytest.importorskip("kaldi_native_fbank")
    wave = make_tones(1, tones=["noise"], random_state=0)[0][0]
    gap = mfcc(2 * wave, 8000) - mfcc(wave, 8000)
    assert gap[:, 0] == pytest.approx(2 * np.log(2), abs=1e-3)
    assert np.abs(gap[:, 1:]).max() < 1e-2


def test_channels_are_averaged_and_integers_scaled():
    pytest.importorskip("kaldi_native_fbank")
    whole = (8000 * make_tones(1, random_state=0)[0][0]).astype(np.int16)
    wave = whole / 32768
    assert np.array_equal(mfcc(whole, 8000), mfcc(wave, 8000))
    difference = 0.1 * np.random.default_rng(0).normal(size=len(wave))
    two = np.column_stack([wave + difference, wave - difference])
    assert mfcc(two, 8000) == pytest.approx(mfcc(wave, 8000), abs=1e-3)


def test_silence_is_finite():
    pytest.importorskip("kaldi_native_fbank")
    assert np.isfinite(mfcc(np.zeros(4000), 8000)).all()


@pytest.mark.parametrize(
    ("wave", "options", "message"),
    [
        (np.zeros(100), {}, "shorter than one frame: it has 100 samples"),
        (np.zeros(4000, int), {}, "floats from -1 to 1"),
        (np.zeros((2, 2, 2)), {}, "must have shape"),
        (np.full(4000, np.nan), {}, "Sample 0 is NaN"),
        (np.zeros(4000), {"n_coefficients": 24}, "n_coefficients must be"),
        (np.zeros(4000), {"window": 0.0}, "window must be"),
    ],
)
def test_bad_recordings_are_named(wave, options, message):
    pytest.importorskip("kaldi_native_fbank")
    with pytest.raises(ValueError, match=message):
        mfcc(wave, 8000, **options)


def test_resampling_keeps_a_tone_and_drops_what_is_above():
    t = np.arange(16000) / 16000
    low, high = np.sin(2 * np.pi * 440 * t), np.sin(2 * np.pi * 6000 * t)
    at_8000 = resample(low + high, 16000, 8000)
    wanted = np.sin(2 * np.pi * 440 * np.arange(8000) / 8000)
    assert np.abs(at_8000 - wanted)[100:-100].max() < 0.02


def write_recordings(folder, n_per_class=2, rate=8000, suffix=".wav", **options):
    soundfile = pytest.importorskip("soundfile")
    recordings, y = make_tones(n_per_class, sample_rate=rate, random_state=0, **options)
    for k, (wave, label) in enumerate(zip(recordings, y, strict=True)):
        (folder / label).mkdir(parents=True, exist_ok=True)
        soundfile.write(folder / label / f"{k}{suffix}", 0.9 * wave, rate, subtype="PCM_16")
    return recordings, y


def test_folder_of_recordings_gives_labels_and_names(tmp_path):
    pytest.importorskip("kaldi_native_fbank")
    recordings, _ = write_recordings(tmp_path / "wav", 6)
    sets = read_recordings(tmp_path / "wav")
    assert sets.n_features == 13 and len(sets) == 24
    assert sets.names[:2].tolist() == ["noise/18.wav", "noise/19.wav"]
    assert sets.names[6:8].tolist() == ["rising/6.wav", "rising/7.wav"]
    # Sixteen bits on disk are all that is lost.
    assert sets[6] == pytest.approx(mfcc(0.9 * recordings[6], 8000), abs=0.1)
    write_recordings(tmp_path / "flac", 6, suffix=".flac")
    flac = read_recordings(tmp_path / "flac", n_jobs=2)
    assert np.abs(flac.X - sets.X).max() < 0.1
    assert left_one_out(sets, sets.labels, "riemann") <= 0.15  # by chance 0.75


def test_recordings_of_two_rates_are_refused_or_resampled(tmp_path):
    pytest.importorskip("kaldi_native_fbank")
    write_recordings(tmp_path, tones=["steady"])
    write_recordings(tmp_path, tones=["trill"], rate=16000)
    with pytest.raises(ValueError, match=r"'trill/0.wav' has 16000 .*'steady/0.wav' has 8000"):
        read_recordings(tmp_path)
    sets = read_recordings(tmp_path, sample_rate=8000)
    assert sets.sizes[2] in range(20, 70)


def test_bad_recordings_of_a_folder_are_named(tmp_path):
    soundfile = pytest.importorskip("soundfile")
    pytest.importorskip("kaldi_native_fbank")
    write_recordings(tmp_path, 1)
    soundfile.write(tmp_path / "noise" / "short.wav", np.zeros(50), 8000)
    with pytest.raises(ValueError, match="Recording 'noise/short.wav': .*shorter than one frame"):
        read_recordings(tmp_path)
    (tmp_path / "noise" / "short.wav").write_bytes(b"no sound")
    with pytest.raises(ValueError, match="Recording 'noise/short.wav' cannot be read"):
        read_recordings(tmp_path)


@pytest.mark.parametrize("module", ["soundfile", "kaldi_native_fbank"])
def test_recordings_without_the_libraries_name_the_extra(tmp_path, monkeypatch, module):
    if module == "kaldi_native_fbank":
        pytest.importorskip("soundfile")
    (tmp_path / "a.wav").write_bytes(b"x")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r"pip install 'nearfar\[audio\]'"):
        read_recordings(tmp_path)


# ---------------------------------------------------------------------- generators


def test_generated_sets_differ_as_asked():
    def error(metric, **options):
        sets = make_sets(15, random_state=0, **options)
        return left_one_out(sets, sets.labels, metric)

    apart, alike = {"means": 3.0, "covariances": 0.0}, {"means": 0.0, "covariances": 1.0}
    assert error("mean", **apart) < 0.1 < 0.4 < error("riemann", **apart)
    assert error("riemann", **alike) < 0.1 < 0.4 < error("mean", **alike)


def test_generators_repeat_with_a_seed_and_refuse_nonsense():
    assert make_sets(2, random_state=1) == make_sets(2, random_state=1)
    sizes = make_sets(30, sizes=(2, 4), random_state=0).sizes
    assert set(sizes) == {2, 3, 4}
    assert np.array_equal(
        make_moving_shapes(1, random_state=1)[0], make_moving_shapes(1, random_state=1)[0]
    )
    for wrong in ({"sizes": (4, 2)}, {"n_classes": 0}, {"within": -1.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            make_sets(**wrong)
    with pytest.raises(ValueError, match="'left'"):
        make_moving_shapes(motions=["lefft"])
    with pytest.raises(ValueError, match="tones must be a list"):
        make_tones(tones="steady")
    with pytest.raises(ValueError, match="n_frames=1"):
        make_moving_shapes(n_frames=1)
    with pytest.raises(ValueError, match="sample_rate=10"):
        make_tones(sample_rate=10)


def test_written_tones_lie_by_kind_and_player(tmp_path):
    folder = write_tones(tmp_path / "new", n_players=3, n_takes=2, random_state=0)
    assert folder == tmp_path / "new"
    found = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.wav"))
    assert len(found) == 4 * 3 * 2
    assert found[:2] == ["noise/player1/take1.wav", "noise/player1/take2.wav"]
    again = write_tones(tmp_path / "again", n_players=3, n_takes=2, random_state=0)
    assert all((folder / name).read_bytes() == (again / name).read_bytes() for name in found)


def test_written_tones_of_one_player_are_alike_in_pitch_and_never_clipped(tmp_path):
    folder = write_tones(tmp_path, n_players=6, tones=["steady"], seconds=1.0, random_state=1)
    pitches = {}
    for path in folder.rglob("*.wav"):
        rate, wave = wavfile.read(path)
        assert rate == 8000 and wave.dtype == np.int16 and np.abs(wave.astype(int)).max() < 32767
        peak = np.argmax(np.abs(np.fft.rfft(wave))) * rate / len(wave)
        pitches.setdefault(path.parent.name, []).append(peak)
    spread = {player: max(found) / min(found) for player, found in pitches.items()}
    middle = [np.median(found) for found in pitches.values()]
    assert max(spread.values()) < 1.25 < 1.5 < max(middle) / min(middle)


def test_sets_of_written_tones_depend_on_the_player_in_their_means(tmp_path):
    pytest.importorskip("kaldi_native_fbank")
    pytest.importorskip("soundfile")
    sets = read_recordings(write_tones(tmp_path, tones=["steady", "trill"], random_state=0))
    players = np.array([name.split("/")[1] for name in sets.names])
    steady = sets.labels == "steady"
    assert left_one_out(sets[steady], players[steady], "mean") < 0.6  # by chance 0.9
    assert left_one_out(sets, sets.labels, "riemann") < 0.1


@pytest.mark.parametrize("wrong", [{"n_players": 0}, {"n_takes": 0}, {"sample_rate": 10}])
def test_nonsense_is_refused_before_anything_is_written(tmp_path, wrong):
    name, value = next(iter(wrong.items()))
    with pytest.raises(ValueError, match=f"{name}={value}"):
        write_tones(tmp_path / "folder", **wrong)
    assert not (tmp_path / "folder").exists()

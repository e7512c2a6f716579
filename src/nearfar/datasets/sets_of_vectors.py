"""Synthetic objects that are sets of vectors: Gaussian sets, clips and recordings."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.io import wavfile

from nearfar.arrays import Matrix
from nearfar.datasets.generators import Seed
from nearfar.summaries.sets import Sets
from nearfar.words import join_names, suggest_name

MOTIONS = ("right", "left", "up", "down", "wave", "bounce", "grow")
TONES = ("steady", "rising", "falling", "trill", "noise")


def make_sets(
    n_per_class: int = 20,
    n_classes: int = 3,
    n_features: int = 4,
    *,
    sizes: tuple[int, int] = (15, 40),
    means: float = 1.0,
    covariances: float = 0.5,
    within: float = 0.2,
    random_state: Seed = None,
) -> Sets:
    r"""Generate sets of vectors from Gaussians that are similar within a class.

    Each class c has a mean :math:`m_c` and a symmetric matrix :math:`S_c`. The vectors of a set are
    drawn from

    .. math:: N(m_c + \delta,\; \exp(S_c + \Delta)),

    with :math:`\delta` and :math:`\Delta` drawn per set.

    Parameters
    ----------
    n_per_class : int, default=20
        Number of sets per class.
    n_classes, n_features : int, default=3 and 4
        Number of classes, and number of features.
    sizes : (int, int), default=(15, 40)
        Minimum and maximum number of vectors per set. Sizes are uniformly distributed.
    means, covariances : float, default=1.0 and 0.5
        Scales of the normally distributed entries of :math:`m_c` and :math:`S_c`. If 0, the
        means (or covariances) of classes do not differ, except for the variation within classes.
    within : float, default=0.2
        Scale of the normally distributed entries of :math:`\delta` and :math:`\Delta`.
    random_state : int, Generator or None, default=None
        Seed or random number generator.

    Returns
    -------
    Sets
        The sets, ordered by class. Their ``labels`` are 0, ..., n_classes - 1.

    Examples
    --------
    >>> from nearfar.datasets import make_sets
    >>> sets = make_sets(random_state=0)
    >>> len(sets), sets.labels[[0, 59]]
    (60, array([0, 2]))
    """
    low, high = sizes
    if min(n_per_class, n_classes, n_features, low) < 1 or high < low:
        raise ValueError(
            f"n_per_class={n_per_class}, n_classes={n_classes}, n_features={n_features} and "
            f"sizes={sizes} must be at least 1, and the second size at least the first."
        )
    if not min(means, covariances, within) >= 0:
        raise ValueError(
            f"means={means}, covariances={covariances} and within={within} must be at least 0."
        )
    rng = np.random.default_rng(random_state)
    arrays = []
    for _ in range(n_classes):
        m = means * rng.normal(size=n_features)
        S = covariances * _draw_symmetric(n_features, rng)
        for _ in range(n_per_class):
            center = m + within * rng.normal(size=n_features)
            covariance_root = linalg.expm((S + within * _draw_symmetric(n_features, rng)) / 2)
            n_vectors = int(rng.integers(low, high, endpoint=True))
            arrays.append(rng.normal(size=(n_vectors, n_features)) @ covariance_root + center)
    return Sets.from_list(arrays, np.repeat(np.arange(n_classes), n_per_class))


def make_moving_shapes(
    n_per_class: int = 10,
    *,
    motions: Sequence[str] = ("right", "up", "wave", "bounce"),
    n_frames: int = 20,
    shape: tuple[int, int] = (36, 48),
    noise: float = 0.01,
    random_state: Seed = None,
) -> tuple[NDArray[np.float32], NDArray[np.str_]]:
    """Generate short clips of a bright, textured disc that moves over a dark background.

    Position, radius, brightness, texture and speed (one to two pixels per frame) are drawn per
    clip. A disc that leaves the frame on one side reenters on the opposite side.

    Parameters
    ----------
    n_per_class : int, default=10
        Number of clips per motion.
    motions : list of str, default=("right", "up", "wave", "bounce")
        Motions, from "right", "left", "up", "down", "wave" (back and forth along a row), "bounce"
        (back and forth along a column) and "grow".
    n_frames : int, default=20
        Number of frames per clip.
    shape : (int, int), default=(36, 48)
        Height and width in pixels.
    noise : float, default=0.01
        Standard deviation of the noise in each pixel.
    random_state : int, Generator or None, default=None
        Seed or random number generator.

    Returns
    -------
    clips : ndarray of float32, shape (n_clips, n_frames, height, width)
        The clips ordered by motion. Values are from 0 to 1, plus noise.
    y : ndarray of shape (n_clips,)
        The motion of each clip.

    See Also
    --------
    motion_histograms : Compute a set of vectors from a clip.

    Examples
    --------
    >>> from nearfar.datasets import make_moving_shapes
    >>> clips, y = make_moving_shapes(random_state=0)
    >>> clips.shape
    (40, 20, 36, 48)
    """
    _check_kinds("motions", motions, MOTIONS)
    if n_per_class < 1 or n_frames < 2 or min(shape) < 8:
        raise ValueError(
            f"n_per_class={n_per_class} must be at least 1, n_frames={n_frames} at least 2, and "
            f"both numbers in shape={shape} at least 8."
        )
    rng = np.random.default_rng(random_state)
    clips = np.stack(
        [_draw_clip(motion, n_frames, shape, rng) for motion in motions for _ in range(n_per_class)]
    )
    clips += noise * rng.normal(size=clips.shape)
    return clips.astype(np.float32), np.repeat(np.array(motions), n_per_class)


def make_tones(
    n_per_class: int = 10,
    *,
    tones: Sequence[str] = ("steady", "rising", "trill", "noise"),
    seconds: float = 0.5,
    sample_rate: int = 8000,
    noise: float = 0.01,
    random_state: Seed = None,
) -> tuple[list[Matrix], NDArray[np.str_]]:
    """Generate short recordings of tones with three overtones.

    Pitch (240 to 320 Hz), loudness and length (75% to 125% of `seconds`) are drawn per recording.

    Parameters
    ----------
    n_per_class : int, default=10
        Number of recordings per type of tone.
    tones : list of str, default=("steady", "rising", "trill", "noise")
        Types of tones, from "steady", "rising" and "falling" (by an octave), "trill" (12 times per
        second) and "noise". Rising and falling tones do not differ as sets of vectors, because sets
        have no order.
    seconds : float, default=0.5
        Mean length of a recording.
    sample_rate : int, default=8000
        Samples per second.
    noise : float, default=0.01
        Standard deviation of the noise added to every recording.
    random_state : int, Generator or None, default=None
        Seed or random number generator.

    Returns
    -------
    recordings : list of ndarrays of shape (n_samples_i,)
        The recordings ordered by type. Values are from -1 to 1, plus noise.
    y : ndarray of shape (n_recordings,)
        The type of each recording.

    See Also
    --------
    mfcc : Compute a set of vectors from a recording.
    write_tones : Write such recordings, by several players, to a folder.

    Examples
    --------
    >>> from nearfar.datasets import make_tones
    >>> recordings, y = make_tones(2, tones=["steady", "trill"], random_state=0)
    >>> len(recordings), y.tolist()
    (4, ['steady', 'steady', 'trill', 'trill'])
    """
    _check_tones(tones, seconds, sample_rate, n_per_class=n_per_class)
    rng = np.random.default_rng(random_state)
    recordings = []
    for kind in tones:
        for _ in range(n_per_class):
            n = int(sample_rate * seconds * rng.uniform(0.75, 1.25))
            t = np.arange(n) / sample_rate
            wave = _draw_tone(kind, t, rng.uniform(240, 320), rng.uniform(0.3, 0.8), 1.0, rng)
            recordings.append(wave + noise * rng.normal(size=n))
    return recordings, np.repeat(np.array(tones), n_per_class)


def write_tones(
    folder: str | os.PathLike[str],
    *,
    n_players: int = 8,
    n_takes: int = 5,
    tones: Sequence[str] = ("steady", "rising", "trill", "noise"),
    seconds: float = 0.5,
    sample_rate: int = 8000,
    noise: float = 0.01,
    random_state: Seed = None,
) -> Path:
    """Write recordings of tones by several players to a folder, as WAV files.

    The tones are those of :func:`make_tones`. Players differ in pitch (150 to 400 Hz), loudness and
    strength of the overtones, so recordings of one player are similar regardless of the tone.

    Parameters
    ----------
    folder : path
        Output folder, which is created if it does not exist. Files are named
        ``tone/player/take.wav``, for example ``trill/player1/take1.wav``. Existing files with these
        names are overwritten.
    n_players, n_takes : int, default=8 and 5
        Number of players, and number of recordings per player and type of tone.
    tones, seconds, sample_rate, noise
        Parameters of the tones, as in :func:`make_tones`.
    random_state : int, Generator or None, default=None
        Seed or random number generator.

    Returns
    -------
    Path
        The folder.

    See Also
    --------
    nearfar.datasets.read_recordings : Read such a folder.

    Examples
    --------
    >>> import tempfile
    >>> from nearfar.datasets import write_tones
    >>> folder = write_tones(tempfile.mkdtemp(), n_players=2, n_takes=1, random_state=0)
    >>> [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*.wav"))][:3]
    ['noise/player1/take1.wav', 'noise/player2/take1.wav', 'rising/player1/take1.wav']
    """
    _check_tones(tones, seconds, sample_rate, n_players=n_players, n_takes=n_takes)
    rng, root = np.random.default_rng(random_state), Path(folder)
    for player in range(1, n_players + 1):
        pitch, loudness = rng.uniform(150, 400), rng.uniform(0.3, 0.7)
        decay = rng.uniform(0.5, 2)
        for kind in tones:
            player_folder = root / kind / f"player{player}"
            player_folder.mkdir(parents=True, exist_ok=True)
            for take in range(1, n_takes + 1):
                n = int(sample_rate * seconds * rng.uniform(0.75, 1.25))
                take_parameters = (
                    pitch * rng.uniform(0.9, 1.1),
                    loudness * rng.uniform(0.8, 1.2),
                )
                wave = _draw_tone(kind, np.arange(n) / sample_rate, *take_parameters, decay, rng)
                wave += noise * rng.normal(size=n)
                samples = (32767 * np.clip(wave, -1, 1)).round().astype(np.int16)
                wavfile.write(player_folder / f"take{take}.wav", sample_rate, samples)
    return root


def _draw_symmetric(p: int, rng: np.random.Generator) -> Matrix:
    G = rng.normal(size=(p, p))
    return np.asarray((G + G.T) / 2)


def _draw_clip(
    motion: str, n_frames: int, shape: tuple[int, int], rng: np.random.Generator
) -> Matrix:
    height, width = shape
    speed = rng.uniform(1, 2)
    # Displacement of the center down and to the right, in pixels. Movements back and forth have a
    # period of 12 frames.
    t = np.arange(n_frames)
    linear_shift, swing = speed * t, 4 * speed * np.sin(2 * np.pi * t / 12)
    no_shift = np.zeros(n_frames)
    shift_down, shift_right = {
        "right": (no_shift, linear_shift),
        "left": (no_shift, -linear_shift),
        "up": (-linear_shift, no_shift),
        "down": (linear_shift, no_shift),
        "wave": (no_shift, swing),
        "bounce": (swing, no_shift),
        "grow": (no_shift, no_shift),
    }[motion]
    radius = np.full(n_frames, rng.uniform(0.15, 0.25) * min(shape))
    if motion == "grow":
        radius = 0.1 * min(shape) + 0.3 * speed * t
    start, brightness = rng.uniform(size=2) * shape, rng.uniform(0.6, 1.0)
    phase, texture_scale = rng.uniform(0, 2 * np.pi, size=2), rng.uniform(1.5, 2.5)
    rows, columns = np.arange(height)[None, :, None], np.arange(width)[None, None]
    # Offsets from the center of the disc. A disc that leaves the image reappears at the opposite
    # border.
    y = (rows - start[0] - shift_down[:, None, None] + height / 2) % height - height / 2
    x = (columns - start[1] - shift_right[:, None, None] + width / 2) % width - width / 2
    r = radius[:, None, None]
    scale = r / r[0] if motion == "grow" else 1.0
    texture = np.cos(y / (texture_scale * scale) + phase[0]) + np.cos(
        x / (texture_scale * scale) + phase[1]
    )
    mask = 1 / (1 + np.exp(np.clip(2 * (np.hypot(y, x) - r), -50, 50)))
    return np.asarray(brightness * mask * (0.7 + 0.15 * texture))


def _draw_tone(
    kind: str, t: Matrix, pitch: float, loudness: float, decay: float, rng: np.random.Generator
) -> Matrix:
    """Return a tone at the times t. The amplitude of harmonic k is k to the power -decay."""
    if kind == "noise":
        return np.asarray(loudness * np.clip(rng.normal(size=len(t)) / 3, -1, 1))
    progress = t / t[-1]
    frequency = (
        pitch
        * {
            "steady": np.ones(len(t)),
            "rising": 2**progress,
            "falling": 2 ** (1 - progress),
            "trill": 2 ** (0.1 * np.sin(2 * np.pi * 12 * t)),
        }[kind]
    )
    # The phase in radians is the integral of the frequency.
    phase = 2 * np.pi * np.cumsum(frequency) * t[1]
    strengths = np.arange(1.0, 5.0) ** -decay
    harmonics_sum = sum(a * np.sin(k * phase) for k, a in enumerate(strengths, 1))
    # The divisor exceeds the sum of the strengths, so that the maximum stays below `loudness`.
    return np.asarray(loudness * harmonics_sum / (1.008 * strengths.sum()))


def _check_tones(tones: Any, seconds: float, sample_rate: int, **counts: int) -> None:
    _check_kinds("tones", tones, TONES)
    if min(counts.values()) < 1 or sample_rate < 4000 or not seconds > 0:
        settings = " and ".join(f"{name}={number}" for name, number in counts.items())
        raise ValueError(
            f"{settings} must be at least 1, sample_rate={sample_rate} at least 4000 and "
            f"seconds={seconds} above 0."
        )


def _check_kinds(name: str, kinds: Any, allowed: Sequence[str]) -> None:
    if isinstance(kinds, str) or not len(kinds):
        raise ValueError(f"{name} must be a list of {join_names(allowed)}; got {kinds!r}.")
    for kind in kinds:
        if kind not in allowed:
            suggestion = suggest_name(kind, allowed)
            raise ValueError(
                f"{name} must contain only values from {join_names(allowed)}; got "
                f"{kind!r}.{suggestion}"
            )

"""Recordings as sets of vectors: mel frequency cepstral coefficients of short frames."""

from __future__ import annotations

import os
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nearfar.arrays import Matrix
from nearfar.blocks import effective_threads, map_in_order
from nearfar.datasets.folders import Member, labels_of, members
from nearfar.extras import require
from nearfar.parameters import check_parameter, integer, none, real
from nearfar.summaries.sets import Sets

SOUNDS = (".wav", ".flac", ".ogg", ".opus", ".mp3", ".aiff", ".aif", ".au", ".caf", ".w64")
_SMALLEST_RATE = 1000


def mfcc(
    recording: ArrayLike,
    sample_rate: int,
    *,
    n_coefficients: int = 13,
    window: float = 0.025,
    step: float = 0.01,
) -> Matrix:
    """A recording as a set of vectors: mel frequency cepstral coefficients of short frames.

    They are computed by kaldi-native-fbank (``pip install nearfar[audio]``) and are those of
    Kaldi: frames with their mean removed, pre-emphasis of 0.97, 23 mel bands from 20 Hz up, and
    the logarithm of a frame's energy in place of the first coefficient. There is no dither: the
    same recording gives the same numbers.

    Parameters
    ----------
    recording : array-like of shape (n_samples,) or (n_samples, n_channels)
        From -1 to 1, or integers of 16 bits. Channels are averaged.
    sample_rate : int
        Samples a second.
    n_coefficients : int, default=13
        From 2 to 23.
    window, step : float, default=0.025 and 0.01
        The length of a frame and the way to the next, in seconds.

    Returns
    -------
    ndarray of shape (n_frames, n_coefficients)

    See Also
    --------
    nearfar.datasets.read_recordings : A folder of recordings, each as such a set.

    Examples
    --------
    >>> from nearfar.datasets import make_tones, mfcc
    >>> recordings, y = make_tones(1, tones=["trill"], random_state=0)
    >>> mfcc(recordings[0], 8000).shape  # doctest: +SKIP
    (51, 13)
    """
    _check_options("mfcc", n_coefficients, window, step)
    check_parameter("mfcc", "sample_rate", sample_rate, [integer(_SMALLEST_RATE)])
    knf = require("kaldi_native_fbank", "audio")
    wave = _mono(recording)
    if len(wave) < round(window * sample_rate):
        raise ValueError(
            f"It is shorter than one frame: {len(wave)} samples at {sample_rate} a second, but a "
            f"frame has {round(window * sample_rate)}. Give a smaller window."
        )
    options = knf.MfccOptions()
    frames = options.frame_opts
    frames.samp_freq = sample_rate
    frames.dither = 0.0
    frames.frame_length_ms, frames.frame_shift_ms = 1000 * window, 1000 * step
    options.num_ceps = n_coefficients
    extractor = knf.OnlineMfcc(options)
    # The scale of 16 bits, at which Kaldi's floors for silence are meant.
    extractor.accept_waveform(sample_rate, (32768 * wave).tolist())
    extractor.input_finished()
    return np.array([extractor.get_frame(k) for k in range(extractor.num_frames_ready)], np.float64)


def read_recordings(
    folder: str | os.PathLike[str],
    *,
    sample_rate: int | None = None,
    n_coefficients: int = 13,
    window: float = 0.025,
    step: float = 0.01,
    n_jobs: int | None = None,
) -> Sets:
    """Recordings in a folder, each a set of mel frequency cepstral coefficients.

    WAV, FLAC, Ogg and MP3 files, among others, are read by soundfile, and a vector of
    coefficients for each short frame is computed by kaldi-native-fbank (``pip install
    nearfar[audio]``). Recordings may lie at any depth; labels and order are those of
    :func:`~nearfar.datasets.read_clips`.

    Parameters
    ----------
    folder : path
        Of the recordings.
    sample_rate : int, default=None
        Bring all recordings to so many samples a second. None asks that all have the same.
    n_coefficients, window, step
        As in :func:`~nearfar.datasets.mfcc`.
    n_jobs : int or None, default=None
        Threads; None means 1, -1 all cores.

    Returns
    -------
    Sets
        With the names of files, relative to the folder, as names.

    Raises
    ------
    ValueError
        Naming the recording that cannot be read, is shorter than a frame, has another rate, or
        has no label while others have one.

    Examples
    --------
    A folder of words, with a sub-folder for each speaker:

    >>> from nearfar.datasets import read_recordings
    >>> sets = read_recordings("words")  # doctest: +SKIP
    >>> sets  # doctest: +SKIP
    Sets(n_sets=270, n_features=13, n_vectors=21042, ..., with labels, names)
    """
    _check_options("read_recordings", n_coefficients, window, step)
    check_parameter("read_recordings", "sample_rate", sample_rate, [none, integer(_SMALLEST_RATE)])
    found = members(folder, SOUNDS, "recordings")
    labels = labels_of(found, "recordings")
    soundfile = require("soundfile", "audio")
    require("kaldi_native_fbank", "audio")

    def rate_of(member: Member) -> int:
        try:
            return int(soundfile.info(str(member.path)).samplerate)
        except Exception as error:
            raise ValueError(f"Recording {member.name!r} cannot be read: {error}") from error

    rates = [rate_of(member) for member in found]
    if sample_rate is None:
        other = next((k for k, rate in enumerate(rates) if rate != rates[0]), None)
        if other is not None:
            raise ValueError(
                f"Recording {found[other].name!r} has {rates[other]} samples a second, but "
                f"{found[0].name!r} has {rates[0]}: their frequency bands differ. Give "
                f"sample_rate={min(rates)} to bring all to it."
            )

    def read(member: Member) -> Matrix:
        try:
            wave, rate = soundfile.read(str(member.path), always_2d=True)
            mono = _mono(wave)
            if sample_rate is not None and rate != sample_rate and len(mono):
                mono, rate = resampled(mono, rate, sample_rate), sample_rate
            return mfcc(mono, rate, n_coefficients=n_coefficients, window=window, step=step)
        except Exception as error:
            raise ValueError(f"Recording {member.name!r}: {error}") from error

    arrays = list(map_in_order(read, found, effective_threads(n_jobs)))
    return Sets.from_list(arrays, labels, [member.name for member in found])


def resampled(wave: Matrix, old: int, new: int) -> Matrix:
    """A recording at another rate, without what that rate cannot hold."""
    common = gcd(old, new)
    from scipy import signal as scipy_signal  # long to import, and few resample

    return np.asarray(scipy_signal.resample_poly(wave, new // common, old // common))


def _mono(recording: ArrayLike) -> Matrix:
    array = np.asarray(recording)
    if array.dtype == np.int16:
        array = array / 32768
    elif array.dtype.kind != "f":
        raise ValueError(
            f"A recording must be floats from -1 to 1, or integers of 16 bits; got {array.dtype}."
        )
    if array.ndim == 2:
        array = array.mean(axis=1)
    if array.ndim != 1:
        raise ValueError(
            f"A recording must have shape (n_samples,) or (n_samples, n_channels); got "
            f"{array.shape}."
        )
    if not np.isfinite(array).all():
        raise ValueError(f"Sample {int(np.argmin(np.isfinite(array)))} is NaN or infinite.")
    return array.astype(np.float64)


def _check_options(owner: str, n_coefficients: Any, window: Any, step: Any) -> None:
    # Kaldi has 23 mel bands.
    check_parameter(owner, "n_coefficients", n_coefficients, [integer(2, 23)])
    check_parameter(owner, "window", window, [real(0.001, 1)])
    check_parameter(owner, "step", step, [real(0.0001, 1)])

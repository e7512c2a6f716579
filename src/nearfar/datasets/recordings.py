"""Recordings as sets of vectors: mel-frequency cepstral coefficients (MFCCs) of short frames."""

from __future__ import annotations

import os
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nearfar.arrays import Matrix
from nearfar.blocks import map_in_order, resolve_n_threads
from nearfar.datasets.folders import Member, find_members, get_labels
from nearfar.extras import import_optional
from nearfar.parameters import check_parameter, integer, none, real
from nearfar.summaries.sets import Sets

SOUNDS = (".wav", ".flac", ".ogg", ".opus", ".mp3", ".aiff", ".aif", ".au", ".caf", ".w64")
# Minimum sample rate, in samples per second.
_MIN_RATE = 1000


def mfcc(
    recording: ArrayLike,
    sample_rate: int,
    *,
    n_coefficients: int = 13,
    window: float = 0.025,
    step: float = 0.01,
) -> Matrix:
    """Compute mel-frequency cepstral coefficients (MFCCs), one vector per short frame.

    The coefficients are computed by kaldi-native-fbank (``pip install nearfar[audio]``) with the
    settings of Kaldi: the mean of each frame is removed, the pre-emphasis is 0.97, there are 23 mel
    bands from 20 Hz, and the logarithm of the frame's energy replaces the first coefficient.
    Dithering is off, so the result is deterministic.

    Parameters
    ----------
    recording : array-like of shape (n_samples,) or (n_samples, n_channels)
        Floats from -1 to 1, or 16-bit integers. Channels are averaged.
    sample_rate : int
        Samples per second.
    n_coefficients : int, default=13
        Number of coefficients per frame, from 2 to 23.
    window, step : float, default=0.025 and 0.01
        Length of a frame, and time between the starts of consecutive frames, in seconds.

    Returns
    -------
    ndarray of shape (n_frames, n_coefficients)
        One row per frame.

    See Also
    --------
    nearfar.datasets.read_recordings : Read a folder of recordings as sets of such vectors.

    Examples
    --------
    >>> from nearfar.datasets import make_tones, mfcc
    >>> recordings, y = make_tones(1, tones=["trill"], random_state=0)
    >>> mfcc(recordings[0], 8000).shape  # doctest: +SKIP
    (51, 13)
    """
    _check_options("mfcc", n_coefficients, window, step)
    check_parameter("mfcc", "sample_rate", sample_rate, [integer(_MIN_RATE)])
    knf = import_optional("kaldi_native_fbank", "audio")
    wave = _convert_to_mono(recording)
    if len(wave) < round(window * sample_rate):
        raise ValueError(
            f"The recording is shorter than one frame: it has {len(wave)} samples at "
            f"{sample_rate} per second, but a frame has {round(window * sample_rate)}. Pass a "
            "smaller window."
        )
    options = knf.MfccOptions()
    frames = options.frame_opts
    frames.samp_freq = sample_rate
    frames.dither = 0.0
    frames.frame_length_ms, frames.frame_shift_ms = 1000 * window, 1000 * step
    options.num_ceps = n_coefficients
    extractor = knf.OnlineMfcc(options)
    # Kaldi's lower limits for silence assume the scale of 16-bit integers.
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
    """Read the recordings in a folder as sets of MFCC vectors, one set per recording.

    WAV, FLAC, Ogg and MP3 files, among others, are read with soundfile, and
    :func:`~nearfar.datasets.mfcc` computes one vector per short frame (``pip install
    nearfar[audio]``). Recordings may be at any depth; labels and order are those of
    :func:`~nearfar.datasets.read_clips`.

    Parameters
    ----------
    folder : path
        Folder of the recordings.
    sample_rate : int, default=None
        Number of samples per second to which all recordings are resampled. None requires that all
        recordings have the same rate.
    n_coefficients, window, step
        Parameters of :func:`~nearfar.datasets.mfcc`.
    n_jobs : int or None, default=None
        Number of threads. None means 1 and -1 means all cores.

    Returns
    -------
    Sets
        The name of a set is the path of its file, relative to the folder.

    Raises
    ------
    ValueError
        If a recording cannot be read, is shorter than a frame, has a different sample rate, or has
        no label although other recordings have one. The message names the recording.

    Examples
    --------
    A folder of words, with one subfolder per speaker:

    >>> from nearfar.datasets import read_recordings
    >>> sets = read_recordings("words")  # doctest: +SKIP
    >>> sets  # doctest: +SKIP
    Sets(n_sets=270, n_features=13, n_vectors=21042, ..., with labels, names)
    """
    _check_options("read_recordings", n_coefficients, window, step)
    check_parameter("read_recordings", "sample_rate", sample_rate, [none, integer(_MIN_RATE)])
    recordings = find_members(folder, SOUNDS, "recordings")
    labels = get_labels(recordings, "recordings")
    soundfile = import_optional("soundfile", "audio")
    import_optional("kaldi_native_fbank", "audio")

    def read_rate(member: Member) -> int:
        try:
            return int(soundfile.info(str(member.path)).samplerate)
        except Exception as error:
            raise ValueError(f"Recording {member.name!r} cannot be read: {error}") from error

    rates = [read_rate(member) for member in recordings]
    if sample_rate is None:
        mismatch = next((k for k, rate in enumerate(rates) if rate != rates[0]), None)
        if mismatch is not None:
            raise ValueError(
                f"Recording {recordings[mismatch].name!r} has {rates[mismatch]} samples per "
                f"second, but {recordings[0].name!r} has {rates[0]}, so their frequency bands "
                f"differ. Pass sample_rate={min(rates)} to resample all recordings to the lowest "
                "rate."
            )

    def read(member: Member) -> Matrix:
        try:
            wave, rate = soundfile.read(str(member.path), always_2d=True)
            mono = _convert_to_mono(wave)
            if sample_rate is not None and rate != sample_rate and len(mono):
                mono, rate = resample(mono, rate, sample_rate), sample_rate
            return mfcc(mono, rate, n_coefficients=n_coefficients, window=window, step=step)
        except Exception as error:
            raise ValueError(f"Recording {member.name!r}: {error}") from error

    arrays = list(map_in_order(read, recordings, resolve_n_threads(n_jobs)))
    return Sets.from_list(arrays, labels, [member.name for member in recordings])


def resample(wave: Matrix, old: int, new: int) -> Matrix:
    """Resample a recording, with an anti-aliasing filter."""
    common = gcd(old, new)
    from scipy import signal as scipy_signal  # This import is slow and rarely needed.

    return np.asarray(scipy_signal.resample_poly(wave, new // common, old // common))


def _convert_to_mono(recording: ArrayLike) -> Matrix:
    array = np.asarray(recording)
    if array.dtype == np.int16:
        array = array / 32768
    elif array.dtype.kind != "f":
        raise ValueError(
            f"A recording must contain floats from -1 to 1, or 16-bit integers; got {array.dtype}."
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
    # Kaldi uses 23 mel bands, so there are at most 23 coefficients.
    check_parameter(owner, "n_coefficients", n_coefficients, [integer(2, 23)])
    check_parameter(owner, "window", window, [real(0.001, 1)])
    check_parameter(owner, "step", step, [real(0.0001, 1)])

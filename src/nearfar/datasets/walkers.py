"""Synthetic silhouettes of walkers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from nearfar.arrays import Floats, Matrix, Vector
from nearfar.datasets.generators import Seed
from nearfar.words import join_names, suggest_name

#: Conditions under which a sequence can differ from normal walking.
CONDITIONS = ("view", "shoe", "surface", "briefcase", "clothing")


class Body(NamedTuple):
    """Parameters of one walk.

    Lengths and half widths are relative to the height of the walker, angles are in radians, and
    the period is in frames.
    """

    thigh: float
    shank: float
    foot: float
    torso: float
    head: float
    arm: float
    chest: float
    belly: float
    hip: float
    calf: float
    limb: float
    sole: float
    stride: float
    knee: float
    knee_late: float
    swing: float
    elbow: float
    lean: float
    period: float


# Mean and standard deviation of each parameter over all subjects.
_BODIES = {
    "thigh": (0.245, 0.008),
    "shank": (0.235, 0.008),
    "foot": (0.115, 0.008),
    "torso": (0.295, 0.010),
    "head": (0.062, 0.004),
    "arm": (0.165, 0.007),
    "chest": (0.070, 0.008),
    "belly": (0.068, 0.011),
    "hip": (0.055, 0.006),
    "calf": (0.034, 0.004),
    "limb": (0.024, 0.003),
    "sole": (0.020, 0.002),
    "stride": (0.42, 0.045),
    "knee": (0.85, 0.12),
    "knee_late": (0.0, 0.15),
    "swing": (0.35, 0.13),
    "elbow": (0.45, 0.16),
    "lean": (0.05, 0.04),
    "period": (27.0, 2.5),
}
# Standard deviation between walks of one subject, divided by the standard deviation between
# subjects.
_WALK_VARIATION = 0.15
# Factors by which the conditions change the parameters of a walk.
_CHANGES: dict[str, dict[str, float]] = {
    "view": {"chest": 1.6, "belly": 1.5, "hip": 1.45, "head": 1.35, "calf": 1.35, "limb": 1.35},
    "shoe": {"foot": 1.15, "sole": 1.6, "knee": 0.95},
    "surface": {"stride": 0.92, "knee": 1.08, "period": 1.04},
    "briefcase": {},
    "clothing": {},
}


def make_walkers(
    n_subjects: int = 20,
    n_sequences: int = 2,
    n_frames: int = 70,
    shape: tuple[int, int] = (64, 44),
    random_state: Seed = 0,
    *,
    conditions: Sequence[str] | None = None,
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Generate sequences of silhouettes of walkers, seen from the side.

    Each leg is a double pendulum: the thigh swings from the hip and the shank from the knee, which
    bends while the leg moves forward. The arms swing in the opposite direction. The lower foot
    stands on the ground, so the body rises and falls.

    Subjects differ in the lengths and widths of their limbs, in how far their legs and arms swing,
    how much their knees and elbows bend, how they lean and how fast they walk. Walks of one subject
    differ slightly in the same parameters. Each walk starts at a random phase of the gait cycle,
    outlines are noisy, and all walkers fill the height of the frame.

    The data replaces the USF HumanID data, which may not be redistributed. It is much easier.

    Parameters
    ----------
    n_subjects, n_sequences : int, default=20 and 2
        Number of subjects, and number of walks per subject.
    n_frames : int, default=70
        Number of frames per walk.
    shape : (int, int), default=(64, 44)
        Height and width of a frame, in pixels.
    random_state : int, Generator or None, default=0
        Seed or random number generator.
    conditions : sequence of str, optional
        Condition of each of the `n_sequences` walks: "" for none, or one or more of "view", "shoe",
        "surface", "briefcase" and "clothing", joined by "+". See Notes.

    Returns
    -------
    sequences : ndarray of uint8, shape (n_subjects * n_sequences, n_frames, height, width)
        1 for pixels of the walker, 0 for the background. Walks are ordered by subject.
    ids : ndarray of shape (n_subjects * n_sequences,)
        The subject of each walk, from 0.
    periods : ndarray of int, shape (n_subjects * n_sequences,)
        Number of frames per gait cycle (two steps).

    See Also
    --------
    nearfar.GaitRecognizer : Identify subjects by their gait.

    Notes
    -----
    - "view": the walker is seen from halfway between the side and the front.
    - "shoe": different shoes.
    - "surface": soft ground, into which the feet sink.
    - "briefcase": the walker carries a briefcase, and that arm hardly swings.
    - "clothing": the walker wears a coat, and was recorded at a different time.

    Examples
    --------
    >>> from nearfar.datasets import make_walkers
    >>> sequences, ids, periods = make_walkers(2, 2, random_state=0)
    >>> sequences.shape, ids.tolist()
    ((4, 70, 64, 44), [0, 0, 1, 1])
    """
    if min(n_subjects, n_sequences, n_frames) < 1 or len(shape) != 2 or min(shape) < 8:
        raise ValueError(
            f"n_subjects={n_subjects}, n_sequences={n_sequences} and n_frames={n_frames} must be "
            f"at least 1, and shape={shape} must be two numbers of at least 8."
        )
    walk_conditions = (
        [()] * n_sequences
        if conditions is None
        else [_split_condition(condition) for condition in conditions]
    )
    if len(walk_conditions) != n_sequences:
        raise ValueError(
            f"conditions must have one entry for each of n_sequences={n_sequences} walks; got "
            f"{len(walk_conditions)}."
        )
    random = np.random.default_rng(random_state)
    means, deviations = np.array(list(_BODIES.values())).T
    walks = np.empty((n_subjects, n_sequences, n_frames, *shape), dtype=np.uint8)
    periods = np.empty((n_subjects, n_sequences), dtype=np.int64)
    for subject in range(n_subjects):
        typical_body = means + deviations * _draw_bounded(random, len(means))
        # The condition "clothing" means a coat and a later recording. It changes each subject
        # differently.
        changed_body = typical_body + 0.5 * deviations * _draw_bounded(random, len(means))
        for k, names in enumerate(walk_conditions):
            subject_mean = changed_body if "clothing" in names else typical_body
            values = subject_mean + _WALK_VARIATION * deviations * _draw_bounded(random, len(means))
            body = Body(*values.tolist())
            for condition in names:
                factors = _CHANGES[condition].items()
                body = body._replace(**{name: by * getattr(body, name) for name, by in factors})
            body = body._replace(period=float(max(2, round(body.period))))
            periods[subject, k] = int(body.period)
            walks[subject, k] = _draw_walk(body, names, n_frames, shape, random)
    ids = np.repeat(np.arange(n_subjects), n_sequences)
    return walks.reshape(-1, n_frames, *shape), ids, periods.ravel()


def _draw_bounded(random: np.random.Generator, n: int) -> Vector:
    """Return standard normal numbers, clipped to [-2, 2] so that all bodies are plausible."""
    return np.clip(random.normal(size=n), -2, 2)


def _split_condition(condition: str) -> tuple[str, ...]:
    names = tuple(name for name in condition.split("+") if name)
    for name in names:
        if name not in CONDITIONS:
            raise ValueError(
                f"conditions must be names from {join_names(CONDITIONS)}, joined by '+'; got "
                f"{name!r}."
                f"{suggest_name(name, CONDITIONS)}"
            )
    return names


def _draw_walk(
    body: Body,
    conditions: tuple[str, ...],
    n_frames: int,
    shape: tuple[int, int],
    random: np.random.Generator,
) -> NDArray[np.bool_]:
    # A period is a whole number of frames, so all cycles are equal to the first cycle.
    n_cycle = int(body.period)
    phase = 2 * np.pi * (np.arange(min(n_cycle, n_frames)) / n_cycle + random.uniform())
    height, width = shape
    # Pixel coordinates relative to the height of the walker. The ground is near the last row, the
    # top of the head near the first.
    unit = 0.94 * height
    y = ((0.97 * height - np.arange(height)) / unit).astype(np.float32)[:, None]
    x = ((np.arange(width) - (width - 1) / 2) / unit).astype(np.float32)
    if "view" in conditions:
        x = x / np.float32(0.72)  # Steps look shorter in this view.
    cycle = np.full((len(phase), height, width), np.inf, dtype=np.float32)
    for limb in _place_limbs(body, phase, conditions):
        np.minimum(cycle, _compute_distance(x, y, *limb), out=cycle)
    outside = cycle[np.arange(n_frames) % n_cycle]
    # Noise makes the outlines ragged, like those of a real segmentation.
    grain = random.standard_normal(outside.shape, dtype=np.float32)
    outside += 0.025 * ndimage.gaussian_filter(grain, (0, 1, 1), mode="nearest")
    if "surface" in conditions:
        sinking_depth = random.uniform(0.0, 0.03, size=n_frames)[:, None, None]
        outside = np.where(y < sinking_depth, np.float32(np.inf), outside)
    return np.asarray(outside < 0)


Limb = tuple[Matrix, Matrix, float, float]


def _place_limbs(body: Body, phase: Vector, conditions: tuple[str, ...]) -> list[Limb]:
    """Return the start, the end and the two half widths of every limb.

    Starts and ends have shape (n_frames, 2), with x forward and y upward.
    """
    zero = np.zeros_like(phase)
    legs = [_place_leg(body, phase + phase_shift) for phase_shift in (0.0, np.pi)]
    # The lower foot stands on the ground.
    lowest = np.minimum.reduce([np.minimum(ankle[:, 1], toe[:, 1]) for _, ankle, toe in legs])
    hip = np.stack([zero, body.sole - lowest], axis=1)
    neck = hip + body.torso * np.array([np.sin(body.lean), np.cos(body.lean)])
    waist = hip + 0.35 * (neck - hip)
    head = neck + (0.045 + body.head) * np.array([np.sin(body.lean / 2), np.cos(body.lean / 2)])
    limbs: list[Limb] = [
        (waist, neck - [0, body.chest], body.belly, body.chest),
        (hip, waist, 1.15 * body.hip, body.belly),
        (neck - [0, 0.02], head, 0.6 * body.head, 0.6 * body.head),
        (head - [0, 0.02], head + [0, 0.02], 0.9 * body.head, body.head),
    ]
    for knee, ankle, toe in legs:
        knee, ankle, toe = (hip + joint for joint in (knee, ankle, toe))
        limbs += [
            (hip, knee, body.hip, 1.05 * body.calf),
            (knee, ankle, 1.05 * body.calf, 0.7 * body.calf),
            (ankle, toe, body.sole, 0.8 * body.sole),
        ]
    has_briefcase = "briefcase" in conditions
    shoulder = neck - [0, 0.3 * body.chest]
    for side, phase_shift in enumerate((np.pi, 0.0)):
        # An arm that carries the briefcase hardly swings.
        is_carrying = has_briefcase and side == 0
        swing = (0.12 if is_carrying else 1) * body.swing * np.sin(phase + phase_shift)
        bend = np.full_like(phase, 0.1 * body.elbow if is_carrying else body.elbow)
        elbow = shoulder + body.arm * _compute_direction(swing - 0.15)
        hand = elbow + 0.95 * body.arm * _compute_direction(swing - 0.15 + bend)
        limbs += [
            (shoulder, elbow, 1.3 * body.limb, body.limb),
            (elbow, hand, body.limb, body.limb),
        ]
        if is_carrying:
            for down in np.linspace(0.05, 0.15, 4):
                back, front = (hand + [side, -down] for side in (-0.085, 0.085))
                limbs.append((back, front, 0.02, 0.02))
    if "clothing" in conditions:
        limbs.append((hip - [0, 0.55 * body.thigh], waist, 1.7 * body.hip, 1.15 * body.belly))
    return limbs


def _place_leg(body: Body, phase: Vector) -> tuple[Matrix, Matrix, Matrix]:
    """Return the positions of knee, ankle and toe relative to the hip.

    The thigh swings, and the knee bends while the leg moves forward.
    """
    thigh = body.stride * np.sin(phase) + 0.08
    # At phase 0, the thigh moves forward at its maximum speed.
    bend = 0.1 + body.knee * np.maximum(np.cos(phase + 0.35 + body.knee_late), 0) ** 2
    knee = body.thigh * _compute_direction(thigh)
    ankle = knee + body.shank * _compute_direction(thigh - bend)
    # The heel rises when the foot is behind, and the toe rises before the foot touches the ground.
    pitch = np.pi / 2 + 0.6 * (thigh - bend) + 0.25 * np.sin(phase)
    toe = ankle + body.foot * _compute_direction(pitch)
    return knee, ankle, toe


def _compute_direction(angle: Vector) -> Matrix:
    """Return the unit vector of each angle.

    Angle 0 points down, and positive angles point forward.
    """
    return np.stack([np.sin(angle), -np.cos(angle)], axis=1)


def _compute_distance(
    x: Floats, y: Floats, start: Matrix, end: Matrix, start_width: float, end_width: float
) -> Floats:
    """Return the distance of each pixel from a limb, which is negative inside the limb.

    The half width of the limb changes linearly from `start_width` to `end_width`.
    """
    x0, y0, dx, dy = (v.astype(np.float32)[:, None, None] for v in (*start.T, *(end - start).T))
    position = ((x - x0) * dx + (y - y0) * dy) / np.maximum(dx**2 + dy**2, 1e-9)
    position = np.clip(position, 0, 1)
    distance = np.sqrt((x - x0 - position * dx) ** 2 + (y - y0 - position * dy) ** 2)
    return np.asarray(
        distance - (start_width + position * (end_width - start_width)).astype(np.float32)
    )

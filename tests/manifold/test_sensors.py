"""Localization of sensors from noisy distances."""

import numpy as np
import pytest

from nearfar.datasets import make_sensor_network
from nearfar.evaluation import procrustes_error
from nearfar.manifold import plot_sensors, sensor_localization
from nearfar.solvers.stress_descent import descend_stress
from nearfar.solvers.unfolding import Edges


def rms(true, found):
    return procrustes_error(true, found, relative=False) / np.sqrt(len(true))


@pytest.fixture(scope="module")
def noisy():
    """Return the reference network: 2000 sensors in the unit square, radius 0.12, 10% noise."""
    return make_sensor_network(2000, radius=0.12, noise=0.1, random_state=0)


def test_distances_without_noise_give_the_places_themselves():
    true, edges, distances = make_sensor_network(2000, radius=0.12, random_state=0)
    result = sensor_localization(edges, distances)
    assert rms(true, result.positions) < 1e-9
    assert result.stress < 1e-9
    assert 0.03 < rms(true, result.start) < 0.25  # accuracy of the program alone


@pytest.mark.slow
def test_noise_of_ten_percent_averages_out(noisy):
    true, edges, distances = noisy
    result = sensor_localization(edges, distances)
    # The specification reports 0.0021 for one draw and requires at most 0.005.
    assert 0.0015 < rms(true, result.positions) < 0.003


@pytest.mark.slow
def test_omega_matters_little_here(noisy):
    """Gradient descent stays folded with ω = 0.9999."""
    true, edges, distances = noisy
    assert rms(true, sensor_localization(edges, distances, slack_penalty=0.9999).positions) < 0.003


def test_without_the_program_the_sensors_stay_in_a_tangle(noisy):
    true, edges, distances = noisy
    squared = distances**2
    graph = Edges.from_pairs(edges, squared / squared.mean(), len(true))
    random = np.random.default_rng(0).normal(size=true.shape)
    tangle = descend_stress(graph, random, price=1.0, reward=0.0, max_iter=200)
    assert rms(true, tangle.factor * np.sqrt(squared.mean())) > 0.1


def test_three_dimensions():
    random = np.random.default_rng(0)
    true = random.uniform(size=(300, 3))
    lengths = np.linalg.norm(true[:, None] - true[None], axis=2)
    edges = np.argwhere(np.triu(lengths < 0.35, 1))
    result = sensor_localization(edges, lengths[tuple(edges.T)], 3)
    assert result.positions.shape == (300, 3) and rms(true, result.positions) < 1e-6


@pytest.mark.slow
def test_a_country_with_bays_is_mapped():
    true, edges, distances = make_sensor_network(1097, noise=0.1, shape="country", random_state=0)
    result = sensor_localization(edges, distances)
    assert rms(true, result.positions) < 0.05  # The network is 2.4 wide.


def test_anchors_give_the_frame_and_stay():
    true, edges, distances = make_sensor_network(400, noise=0.05, random_state=0)
    true = true @ [[0, -1], [1, 0]] + [100, -50]
    anchors = {3: true[3], 50: true[50], 200: true[200], 399: true[399]}
    result = sensor_localization(edges, distances, anchors=anchors)
    for sensor, place in anchors.items():
        np.testing.assert_allclose(result.positions[sensor], place, atol=1e-9)
    error = np.linalg.norm(result.positions - true, axis=1)
    assert np.sqrt(np.mean(error**2)) < 0.02
    # Without anchors the frame differs.
    assert np.linalg.norm(sensor_localization(edges, distances).positions - true, axis=1).min() > 10


def test_one_anchor_gives_the_shift():
    true, edges, distances = make_sensor_network(200, random_state=0)
    result = sensor_localization(edges, distances, anchors={7: [5.0, 6.0]})
    np.testing.assert_allclose(result.positions[7], [5, 6], atol=1e-9)
    assert rms(true, result.positions) < 1e-6


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_units_do_not_matter(scale):
    _, edges, distances = make_sensor_network(150, noise=0.05, random_state=0)
    one = sensor_localization(edges, distances)
    two = sensor_localization(edges, scale * distances)
    assert procrustes_error(one.positions, two.positions / scale) < 1e-5
    assert two.stress == pytest.approx(one.stress, rel=1e-4)


def test_equal_input_gives_equal_bits():
    _, edges, distances = make_sensor_network(150, noise=0.05, random_state=0)
    one, two = (sensor_localization(edges, distances).positions for _ in range(2))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"edges": [[0, 1], [2, 3]], "distances": [1.0, 1.0]}, "2 components"),
        ({"n_sensors": 500}, "there are .* components"),
        ({"n_sensors": 3}, "indices from 0 to 2"),
        ({"distances": [1.0]}, "one per edge"),
        ({"edges": [[0.5, 1.0]]}, "integer array of shape"),
        ({"edges": [[0, 0], [1, 1]], "distances": [1.0, 1.0]}, "must join different sensors"),
        ({"n_components": 0}, "n_components must be"),
        ({"n_basis": 1}, "n_basis must be"),
        ({"slack_penalty": 1.0}, "slack_penalty must be"),
        ({"anchors": {1000: [0, 0]}}, "anchors must have keys"),
        ({"anchors": {1: [0, 0, 0]}}, "must consist of 2 finite numbers"),
        ({"anchors": {1: [0, np.nan]}}, "must consist of 2 finite numbers"),
    ],
)
def test_misuse_is_named(change, message):
    _, edges, distances = make_sensor_network(100, random_state=0)
    with pytest.raises(ValueError, match=message):
        sensor_localization(**({"edges": edges, "distances": distances} | change))


@pytest.mark.parametrize("bad", [np.nan, 0.0, -1.0, np.inf])
def test_bad_distances_are_named(bad):
    _, edges, distances = make_sensor_network(100, random_state=0)
    distances[3] = bad
    with pytest.raises(ValueError, match="distances must be finite and positive"):
        sensor_localization(edges, distances)


# ---------------------------------------------------------------------- networks


def test_networks_measure_near_sensors_only():
    true, edges, distances = make_sensor_network(300, radius=0.2, max_neighbors=8, random_state=1)
    lengths = np.linalg.norm(true[edges[:, 0]] - true[edges[:, 1]], axis=1)
    np.testing.assert_allclose(distances, lengths)
    assert lengths.max() <= 0.2 and (edges[:, 0] < edges[:, 1]).all()
    assert len(np.unique(edges, axis=0)) == len(edges) <= 300 * 8
    noisy = make_sensor_network(300, radius=0.2, noise=0.1, random_state=1)[2]
    exact = make_sensor_network(300, radius=0.2, random_state=1)[2]
    assert 0.09 < np.abs(noisy / exact - 1).max() <= 0.1
    with pytest.raises(ValueError, match="noise"):
        make_sensor_network(10, noise=2.0)
    with pytest.raises(ValueError, match="shape"):
        make_sensor_network(10, shape="torus")


@pytest.mark.parametrize(
    ("anchors", "message"),
    [
        ({"a": [0, 0], 1: [0, 0]}, "anchors must have keys from 0 to 49"),
        ({50: [0, 0]}, "anchors must have keys from 0 to 49"),
        ({0: [0, 0], 1: [0]}, "Each position in anchors must consist of 2 finite numbers"),
        ({0: [0, np.nan]}, "Each position in anchors must consist of 2 finite numbers"),
        (np.zeros((4, 2)), "anchors must be a dict from sensor index"),
    ],
)
def test_anchors_that_are_none_are_told(anchors, message):
    _, edges, distances = make_sensor_network(50, radius=0.4, random_state=0)
    with pytest.raises(ValueError, match=message):
        sensor_localization(edges, distances, anchors=anchors)


@pytest.mark.parametrize("which", [[7], [7, 9], [0, 1, 2]])
def test_anchors_too_few_for_a_frame_are_held_and_shapes_kept(which):
    true, edges, _ = make_sensor_network(150, radius=0.25, random_state=0)
    true[:3] = [[0.45, 0.5], [0.5, 0.5], [0.55, 0.5]]  # on a line
    near = np.linalg.norm(true[edges[:, 0]] - true[edges[:, 1]], axis=1) < 0.5
    close = [(i, j) for i in range(3) for j in range(3, 150)]
    close = [(i, j) for i, j in close if np.linalg.norm(true[i] - true[j]) < 0.25]
    edges = np.vstack([edges[near], close])
    distances = np.linalg.norm(true[edges[:, 0]] - true[edges[:, 1]], axis=1)
    result = sensor_localization(edges, distances, anchors={i: true[i] for i in which}).positions
    np.testing.assert_allclose(result[which], true[which], atol=1e-12)
    assert procrustes_error(true, result) < 1e-6


def test_ctrl_c_is_not_swallowed(monkeypatch):
    _, edges, distances = make_sensor_network(50, radius=0.4, random_state=0)

    def impatient(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("nearfar.solvers.stress_descent._has_settled", impatient)
    with pytest.raises(KeyboardInterrupt):
        sensor_localization(edges, distances)


# ---------------------------------------------------------------------- plot_sensors


def test_picture_lies_over_the_true_places():
    pytest.importorskip("matplotlib")
    true, edges, distances = make_sensor_network(80, radius=0.35, random_state=0)
    result = sensor_localization(edges, distances)
    ax = plot_sensors(result, true, edges=edges)
    drawn = {item.get_label(): np.asarray(item.get_offsets()) for item in ax.collections[-2:]}
    np.testing.assert_allclose(drawn["found"], drawn["true"], atol=1e-6)
    assert len(ax.collections) == 4  # edges, errors, true, found
    with_anchors = plot_sensors(true, true, anchors={0: true[0], 5: true[5]})
    np.testing.assert_allclose(with_anchors.collections[-1].get_offsets(), true[[0, 5]])
    with pytest.raises(ValueError, match="n_sensors, 2"):
        plot_sensors(np.zeros((5, 3)))


def test_matplotlib_is_asked_for_by_name(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name="matplotlib")

    monkeypatch.setattr("nearfar.extras.import_module", missing)
    with pytest.raises(ImportError, match=r"nearfar\[plot\]"):
        plot_sensors(np.zeros((5, 2)))

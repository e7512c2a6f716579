"""
Where are the sensors?
======================

A thousand sensors in a country with bays each measure their distances to a few others near them,
up to 10 % wrong. No one knows where it is. The distances are enough to draw the map: the setting is
that of section 3.1.8 of Weinberger's thesis on metric learning, with towns that are drawn at random
in place of US cities.
"""

# %%
# A small semidefinite program places the sensors within the ten smoothest functions on the graph of
# measured pairs. That gives the outline. Descent on the errors of the distances does the rest.

import matplotlib.pyplot as plt
import numpy as np

from nearfar.datasets import make_sensor_network
from nearfar.evaluation import procrustes_error
from nearfar.manifold import plot_sensors, sensor_localization

true, edges, distances = make_sensor_network(1097, noise=0.1, shape="country", random_state=0)
found = sensor_localization(edges, distances)


def error(places):
    """Root mean square distance from the true places, after the best rotation."""
    return procrustes_error(true, places, relative=False) / np.sqrt(len(true))


figure, axes = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
for ax, places, title in [
    (axes[0], found.start, "program"),
    (axes[1], found.positions, "program and descent"),
]:
    plot_sensors(places, true, edges=edges, ax=ax)
    ax.set_title(f"{title}: off by {error(places):.3f} on average")
plt.show()

# %%
# Without noise, the places come out to the last digit.

true_, edges_, distances_ = make_sensor_network(500, random_state=1)
exact = sensor_localization(edges_, distances_)
print(f"Largest relative error: {procrustes_error(true_, exact.positions):.1e}")

# %%
# Rotation, reflection and shift are nobody's to know from distances. Sensors whose places are known
# give them.

anchors = {i: true[i] for i in (0, 100, 500, 900)}
anchored = sensor_localization(edges, distances, anchors=anchors)
off = np.linalg.norm(anchored.positions - true, axis=1)
ax = plot_sensors(anchored, true, anchors=anchors, ax=plt.figure(layout="constrained").gca())
ax.set_title(f"With four anchors: off by {np.sqrt(np.mean(off**2)):.3f}")
plt.show()

# %%
# What the reward for variance is for: with too little of it, ω near 1, the start stays folded, and
# descent cannot unfold it; with too much it is torn wide.

for slack_penalty in (0.5, 0.99, 0.9999):
    start = sensor_localization(edges, distances, slack_penalty=slack_penalty, max_iter=300)
    print(
        f"slack_penalty {slack_penalty}: start {error(start.start):.3f}, end "
        f"{error(start.positions):.4f}"
    )

"""Embeddings of a neighbor graph."""

from nearfar.manifold.sensors import SensorPlaces, plot_sensors, sensor_localization

__all__ = ["SensorPlaces", "plot_sensors", "sensor_localization"]

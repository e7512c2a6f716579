"""Embedded sets, readers for tables, arrays and their labels, and generators."""

from nearfar.datasets.generators import (
    make_class_separation,
    make_five_classes,
    make_multimodal,
    make_unequal_covariances,
)
from nearfar.datasets.sensor_networks import make_sensor_network
from nearfar.datasets.tables import EMBEDDED, Table, read_table

__all__ = [
    "EMBEDDED",
    "Table",
    "make_class_separation",
    "make_five_classes",
    "make_multimodal",
    "make_sensor_network",
    "make_unequal_covariances",
    "read_table",
]

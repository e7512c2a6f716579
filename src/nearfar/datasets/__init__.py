"""Built-in datasets, readers for tables, images, clips and recordings, and generators."""

from nearfar.datasets.builtin import BUILT_IN, BuiltIn
from nearfar.datasets.clips import read_clips
from nearfar.datasets.gait_files import load_gait
from nearfar.datasets.generators import (
    make_class_separation,
    make_few_relevant,
    make_five_classes,
    make_multimodal,
    make_unequal_covariances,
)
from nearfar.datasets.low_rank_tensors import make_low_rank_tensors
from nearfar.datasets.motion import motion_histograms, optical_flow
from nearfar.datasets.pair_files import read_pairs, read_quadruplets
from nearfar.datasets.pictures import Images, load_images
from nearfar.datasets.recordings import mfcc, read_recordings
from nearfar.datasets.sensor_networks import make_sensor_network
from nearfar.datasets.set_tables import read_sets
from nearfar.datasets.sets_of_vectors import (
    make_moving_shapes,
    make_sets,
    make_tones,
    write_tones,
)
from nearfar.datasets.table import Table
from nearfar.datasets.tables import read_table
from nearfar.datasets.walkers import make_walkers

__all__ = [
    "BUILT_IN",
    "BuiltIn",
    "Images",
    "Table",
    "load_gait",
    "load_images",
    "make_class_separation",
    "make_few_relevant",
    "make_five_classes",
    "make_low_rank_tensors",
    "make_moving_shapes",
    "make_multimodal",
    "make_sensor_network",
    "make_sets",
    "make_tones",
    "make_unequal_covariances",
    "make_walkers",
    "mfcc",
    "motion_histograms",
    "optical_flow",
    "read_clips",
    "read_pairs",
    "read_quadruplets",
    "read_recordings",
    "read_sets",
    "read_table",
    "write_tones",
]

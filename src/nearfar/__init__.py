"""Metric learning with a scikit-learn API.

Public names are loaded lazily through the stub ``__init__.pyi``, so that ``import nearfar`` imports
neither scikit-learn nor SciPy.
"""

import lazy_loader as _lazy

__version__ = "0.1.0.dev0"

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)

"""Lets pytest run the snippets of the guide: ``pytest docs --doctest-glob='*.rst'``."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
collect_ignore_glob = ["conf.py", "_*", "api/*", "gallery/*"]
# Where own_learners.py, shown on the page about extending, is imported from.
sys.path.insert(0, str(HERE / "guide"))

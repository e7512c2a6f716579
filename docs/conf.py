"""Sphinx configuration. Builds without network; fails when a public name has no page."""

import inspect
import sys
from pathlib import Path
from typing import Any

import matplotlib
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from threadpoolctl import threadpool_limits

import nearfar
import nearfar.base
import nearfar.evaluation

matplotlib.use("agg")
# The gallery's problems are small: one BLAS thread is faster, and its numbers are reproducible.
threadpool_limits(1)
sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "nearfar"
author = "The nearfar developers"
copyright = "the nearfar developers"
release = version = nearfar.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "native_math",
    "estimators",
    "benchmark_page",
]
templates_path = ["_templates"]
exclude_patterns = ["_build"]
default_role = "py:obj"

autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False

html_theme = "pydata_sphinx_theme"
html_title = "nearfar"
html_static_path = ["_static"]
html_css_files = ["nearfar.css"]
html_math_renderer = "mathml"
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"index": [], "gallery/**": []}

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "backreferences_dir": "api/generated/backreferences",
    "doc_module": ("nearfar",),
    "abort_on_example_error": True,
    "show_signature": False,
    "min_reported_time": 1,
    "write_computation_times": False,
    "remove_config_comments": True,
    "matplotlib_animations": False,
    "capture_repr": (),
}


def skip_inherited_from_scikit_learn(
    app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any
) -> bool | None:
    """scikit-learn documents its own methods; ``parameters`` repeats the parameter lists."""
    if name == "parameters":
        return True
    module = getattr(inspect.unwrap(obj) if callable(obj) else obj, "__module__", None) or ""
    return True if module.partition(".")[0] == "sklearn" else None


def check_every_public_name_has_a_page(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn, and so fail under -W, for each public name without a page."""
    documented = set(env.get_domain("py").objects)  # type: ignore[attr-defined]
    wanted = [{f"nearfar.{name}"} for name in nearfar.__all__]
    for module in (nearfar.base, nearfar.evaluation):
        wanted += [{f"{module.__name__}.{name}", f"nearfar.{name}"} for name in module.__all__]
    for names in wanted:
        if not names & documented:
            logging.getLogger(__name__).warning(
                "%s is public and has no page: add it to docs/api/index.rst", min(names, key=len)
            )


def check_references(app: Sphinx, doctree: nodes.document) -> None:
    """Warn when the initials of an author were read as the letter of a list item."""
    for reference in (*doctree.findall(nodes.citation), *doctree.findall(nodes.footnote)):
        if any(reference.findall(nodes.enumerated_list)):
            logging.getLogger(__name__).warning(
                "reference %r became a list: break its line, or begin with the surname",
                reference.astext(),
                location=doctree,
            )


def setup(app: Sphinx) -> None:
    app.connect("doctree-read", check_references)
    app.connect("autodoc-skip-member", skip_inherited_from_scikit_learn)
    app.connect("env-check-consistency", check_every_public_name_has_a_page)

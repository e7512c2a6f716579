"""What every page shares: the template, the files inside it, and a file that is written whole."""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
from collections.abc import Callable
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from nearfar.app.report.markup import Markup, breakable
from nearfar.app.report.words import cut, moment
from nearfar.extras import import_optional


def render_page(
    template: str, content: dict[str, Any], *, style: str | list[str], script: str | list[str]
) -> str:
    """A page that needs no network.

    Parameters
    ----------
    template : str
        Name of the template.
    content : dict
        What it asks for.
    style, script : str or list of str
        Names of the files that go into the page after those all pages share.
    """
    inside = {
        "style": Markup("".join(map(_asset, _each("report.css", style))) + _shades()),
        "script": Markup("".join(map(_asset, _each("page.js", script)))),
    }
    # Style and script of ours only, known by their hashes: what a value in the data might smuggle
    # into the page is not run.
    inside["policy"] = Markup(
        f"default-src 'none'; style-src {_hash(inside['style'])}; "
        f"script-src {_hash(inside['script'])}; img-src data:; base-uri 'none'; form-action 'none'"
    )
    page = _environment().get_template(template).render(content | inside)
    # Last of all: no half of a surrogate pair may reach the file.
    return str(page).encode("utf-8", "replace").decode("utf-8")


@cache
def _environment() -> Any:
    """Where templates are compiled, each of them once."""
    jinja2 = import_optional("jinja2", "app")
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.FunctionLoader(_asset),
    )
    environment.filters["breakable"] = breakable
    return environment


def frame(
    name: Any, created: Any, versions: dict[str, Any], command: str, first: str
) -> dict[str, Any]:
    """What every page has around its sections; ``first`` is where the page begins."""
    return {
        "name": cut(name, 60) or "data",
        "made": moment(created),
        "version": cut(versions.get("nearfar"), 40),
        "command": command,
        "first": first,
    }


def _hash(text: str) -> str:
    """What a content security policy calls a piece of style or script.

    >>> _hash("")
    "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
    """
    digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()
    return f"'sha256-{digest}'"


def _shades() -> str:
    """Rules for the depths of cells, as a policy without inline style leaves no other way."""
    return "".join(f'[data-shade="{i}"]{{--shade:{i / 100:g}}}' for i in range(101)) + "\n"


def figure(title: str, value: str, note: str) -> dict[str, str]:
    """A large number with what it is."""
    return {"title": title, "value": value, "note": note}


def _each(first: str, others: str | list[str]) -> list[str]:
    return list(dict.fromkeys([first, *([others] if isinstance(others, str) else others)]))


def write_page(
    make: Callable[[], str], path: str | os.PathLike[str], *, force: bool, example: str
) -> Path:
    """Write what ``make`` returns to a temporary file first: a reader never sees half of it."""
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder; name a file in it, like {example}.")
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"The folder {target.parent} of {target.name} does not exist; create it first."
        )
    _refuse_existing(target, force)
    page = make()
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.write_text(page, encoding="utf-8", newline="\n")
        _refuse_existing(target, force)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def _asset(name: str) -> str:
    return resources.files("nearfar.app.report").joinpath(name).read_text("utf-8")


def _refuse_existing(target: Path, force: bool) -> None:
    if target.exists() and not force:
        raise FileExistsError(
            f"{target} exists and was left as it is; pass force=True (--force on the command "
            "line) to replace it, or choose another name."
        )

"""The library is written in plain American English: words that readers stumbled over stay away.

``tests/plain_language.txt`` has one regular expression per line. They may not occur in errors and
warnings, and elsewhere only in the uses that ``ALLOWED`` lists. The application is not covered yet.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = ROOT / "src" / "nearfar"
PATTERN = re.compile(
    "|".join(
        f"(?:{line})"
        for line in (ROOT / "tests/plain_language.txt").read_text().split("\n")
        if line
    ),
    re.IGNORECASE,
)
#: Uses that are allowed: path, text of the use, reason. At most 40.
ALLOWED = [
    ("discriminant/gada.py", "unnormalised", "a value in older model files"),
    ("discriminant/mgmd.py", "unnormalised", "a value in older model files"),
    ("discriminant/multimodal_mgmkld.py", "unnormalised", "a value in older model files"),
    ("mahalanobis/nca.py", "Neighbourhood", "the title of a paper"),
    ("solvers/soft_neighbors.py", "Neighbourhood", "the title of a paper"),
]
#: Functions whose texts are warnings or errors, besides ``raise`` statements.
_REPORTING = re.compile(r"warn|need$|error$")


def library_files():
    files = [p for p in LIBRARY.rglob("*.py") if "app" not in p.relative_to(LIBRARY).parts]
    return sorted([*files, *(p for p in LIBRARY.rglob("*.toml") if "app" not in p.parts)])


def find_messages(source):
    """Return the texts of errors and warnings of a module."""
    texts = []
    for node in ast.walk(ast.parse(source)):
        is_report = isinstance(node, ast.Call) and _REPORTING.search(
            getattr(node.func, "id", getattr(node.func, "attr", ""))
        )
        if is_report or (isinstance(node, ast.Raise) and node.exc is not None):
            texts += [
                constant.value
                for constant in ast.walk(node)
                if isinstance(constant, ast.Constant) and isinstance(constant.value, str)
            ]
    return texts


def test_messages_are_found():
    source = (
        'raise ValueError(f"so many {n} rows")\nwarnings.warn("told", stacklevel=2)\nx = "so few"'
    )
    assert find_messages(source) == ["so many ", " rows", "told"]
    assert [bool(PATTERN.search(text)) for text in ("so many rows", "the number of rows")] == [
        True,
        False,
    ]


@pytest.mark.parametrize("path", library_files(), ids=lambda p: str(p.relative_to(LIBRARY)))
def test_words_of_a_module(path):
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        said = [message for message in find_messages(text) if PATTERN.search(message)]
        assert not said, f"reword these messages: {said}"
    name = path.relative_to(LIBRARY).as_posix()
    found = [match[0] for match in PATTERN.finditer(text)]
    for place, words, _ in ALLOWED:
        if place == name:
            assert words in found, f"{words!r} does not occur any more: remove it from ALLOWED"
            found.remove(words)
    assert not found, f"reword these, or add them to ALLOWED with a reason: {found}"


def test_few_uses_are_allowed():
    assert len(ALLOWED) <= 40
    assert all(reason for _, _, reason in ALLOWED)
    assert {path for path, _, _ in ALLOWED} <= {
        p.relative_to(LIBRARY).as_posix() for p in library_files()
    }


@pytest.mark.parametrize(
    "name",
    ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "README.md", "Makefile", "pyproject.toml"],
)
def test_words_of_a_page(name):
    assert PATTERN.findall((ROOT / name).read_text(encoding="utf-8")) == []

"""docs/architecture.rst draws the rooms that there are."""

import re
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

from nearfar import all_estimators

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "nearfar"
PAGE = (ROOT / "docs" / "architecture.rst").read_text("utf-8")
sys.path.insert(0, str(ROOT / "docs" / "_ext"))

import rooms_picture  # noqa: E402


def drawn() -> list[tuple[str, str]]:
    """Kind and name of each box."""
    space = "{http://www.w3.org/2000/svg}"
    tree = ElementTree.parse(rooms_picture.PICTURE)
    return [(box.get("class"), box.find(f"{space}text").text) for box in tree.iter(f"{space}g")]


def on_disk(folder: Path) -> list[tuple[str, str]]:
    rooms = [("room", path.parent.name) for path in folder.glob("*/__init__.py")]
    return rooms + [("module", path.name) for path in folder.glob("[!_]*.py")]


def test_picture_has_exactly_the_rooms_that_exist():
    exist = set(on_disk(SOURCE) + on_disk(SOURCE / "app")) - {("room", "app")}
    assert len(drawn()) == len(exist)
    assert set(drawn()) == exist


def test_picture_is_up_to_date():
    drawn_now = rooms_picture.picture()
    assert rooms_picture.PICTURE.read_text("utf-8") == drawn_now, (
        "run: python docs/_ext/rooms_picture.py"
    )


def contracts(kind: str) -> list[dict]:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    return [contract for contract in linter["contracts"] if contract["type"] == kind]


def test_model_files_are_kept_apart_from_every_room_of_methods():
    (contract,) = [
        c for c in contracts("forbidden") if "nearfar.persistence" in c["source_modules"]
    ]
    rooms = {kind.__module__.split(".")[1] for kind in all_estimators().values()}
    assert {f"nearfar.{room}" for room in rooms} == set(contract["forbidden_modules"])


@pytest.mark.parametrize("container", ["nearfar", "nearfar.app"])
def test_layers_have_every_room_and_those_to_come_are_optional(container):
    (layers,) = [c["layers"] for c in contracts("layers") if container in c["containers"]]
    named = {name for layer in layers for name in re.findall(r"\w+", layer)}
    optional = {name for layer in layers for name in re.findall(r"\((\w+)\)", layer)}
    folder = SOURCE.joinpath(*container.split(".")[1:])
    exist = {name.removesuffix(".py") for _, name in on_disk(folder)}
    assert exist <= named
    assert named - exist <= optional | {"__main__"}


def test_page_shows_the_picture_and_is_linked():
    assert "_static/rooms.svg" in PAGE
    for name in ("README.md", "CONTRIBUTING.md"):
        assert "docs/architecture.rst" in (ROOT / name).read_text("utf-8")


@pytest.mark.parametrize("section", ["LMNN().fit(X, y)", "nearfar compare table.csv"])
def test_files_and_names_on_the_way_of_the_data_exist(section):
    text = PAGE.partition(f"The way of the data: ``{section}``")[2].partition("\nWhere a new")[0]
    text = text.partition("The way of the data")[0]
    start = SOURCE if "LMNN" in section else SOURCE / "app"
    files = set(re.findall(r"``([\w/]+\.py)``", text))
    assert len(files) > 5
    nearby = [start, *(start / room for room in ("large_margin", "compare"))]
    for file in files:
        assert any((folder / file).exists() for folder in nearby), file
    code = "\n".join(path.read_text("utf-8") for path in SOURCE.rglob("*.py"))
    for name in re.findall(r"``(?:\w+\.)?(\w+)``", text):
        assert re.search(rf"\b{name}\b", code), name


def test_every_room_is_a_place_for_something_new():
    table = PAGE.partition("Where a new thing goes")[2]
    rooms = {name for kind, name in drawn() if kind == "room"}
    assert rooms <= set(re.findall(r"[\w]+", table))

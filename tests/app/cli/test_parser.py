"""Help, suggestions and errors of the command line."""

import re

import pytest

from nearfar.app import cli
from nearfar.app.cli import main
from nearfar.app.cli.again import parts_of

COMMANDS = [
    *("compare", "embed", "fit", "predict", "transform", "neighbors", "explain", "show"),
    "methods",
]


@pytest.fixture
def ended(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    def run(*words):
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        return ended.value.code, *capsys.readouterr()

    return run


def parser_of(command):
    return cli._parser()._commands()[command]


# ---------------------------------------------------------------------- help


def test_nearfar_alone_help_and_dash_dash_help_print_the_overview(ended):
    code, out, err = ended()
    assert (code, err) == (0, "")
    assert ended("help") == ended("--help") == ended("help", "help") == (0, out, "")
    for command in COMMANDS:
        assert f"\n  {command} " in out
    assert out.count("\n  nearfar ") == 3  # examples
    assert "Exit codes: 0 success, 2 error in options or data, 130 interrupted." in out
    assert out.index("Fit and use a model:") < out.index("\n  predict") < out.index("Look up:")


def test_a_command_in_no_group_is_listed_last():
    parser = cli._parser()
    next(a for a in parser._actions if hasattr(a, "add_parser")).add_parser("zebra", help="stripes")
    assert parser.format_help().partition("Look up:")[2].index("zebra      stripes") > 0


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_short_and_help_all_has_every_option(ended, command):
    code, out, err = ended(command, "--help")
    assert (code, err) == (0, "") and ended("help", command) == (code, out, err)
    lines = out.splitlines()
    assert f"usage: nearfar {command}" in out and max(map(len, lines)) <= 80
    assert out.count("\n  nearfar ") == 3
    assert "\nGuide: docs/guide/" in out
    parser = parser_of(command)
    assert len(parser.common) <= 12
    assert bool(parser.common) == (f"All options: nearfar {command} --help-all" in out)
    code, everything, err = ended(command, "--help-all")
    assert (code, err) == (0, "") and max(map(len, everything.splitlines())) <= 80
    for action in parser._actions:
        for name in action.option_strings:
            is_hidden = name == getattr(action, "hidden", None)
            is_listed = re.search(rf"^  .*{name}(?![\w-])", everything, re.MULTILINE)
            assert bool(is_listed) != is_hidden, name
        assert action.help


@pytest.mark.parametrize("command", COMMANDS)
def test_the_guide_and_the_examples_exist(command, request):
    parser = parser_of(command)
    assert (request.config.rootpath / "docs" / "guide" / parser.guide).exists()
    for words, text in parser.examples:
        cli._parser().parse_args(words.split())
        assert text.endswith((".", "?"))


def test_exit_codes_are_documented_where_they_are_used(ended):
    for text in ("Exit codes: 0 success", "10 keep", "11 inconclusive", "12 not finished"):
        assert text in ended("compare", "--help-all")[1]


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["comapre"], "unknown command 'comapre'. Did you mean compare?"),
        (["help", "comapre"], "unknown command 'comapre'. Did you mean compare?"),
        (["xyzzy"], "unknown command 'xyzzy'.\n"),
        (
            ["compare", "iris", "--method", "lda"],
            "option --method. Did you mean --methods?",
        ),
        (["compare", "iris", "--set", "k=3"], "unknown option --set. "),
        (["compare", "iris", "--target=x", "--repeat=3"], "--repeat. Did you mean --repeats?"),
        (["compare", "iris", "--qqqqqq"], "unknown option --qqqqqq.\n"),
        (["compare", "iris", "-z"], "unknown option -z.\n"),
        # Reported before the argument that is missing because of it.
        (["fit", "iris", "--metod", "lda", "--save", "m.nf"], "Did you mean --method?"),
        (["compare", "iris", "wine"], "unexpected argument: wine"),
        (["transform", "m.nf", "a.csv"], "are required: -o/--out\n"),
        (["compare", "iris", "--repeats", "0"], "--repeats: must be at least 1; got 0"),
        (["compare", "iris", "--repeats", "2.5"], "--repeats: expected a whole number; got '2.5'"),
    ],
)
def test_an_error_shows_the_usage_the_message_and_where_to_find_help(ended, words, message):
    code, out, err = ended(*words)
    assert (code, out) == (2, "")
    known = words[0] in COMMANDS
    name = f"nearfar {words[0]}" if known else "nearfar"
    usage, error, more = err.splitlines()
    assert usage.startswith(f"usage: {name} ") and usage.endswith(" [options]")
    assert error.startswith(f"{name}: error: ") and message in err
    assert more == f"Try: {name} --help"


def test_a_hidden_name_is_never_suggested(ended):
    assert "--time-column" in ended("compare", "iris", "--time-colum", "t")[2]
    assert "Did you mean --color?" in ended("embed", "iris", "--colou", "t")[2]


def test_old_names_still_work():
    parse = cli._parser().parse_args
    for words in (["compare", "a"], ["fit", "a", "--method", "lda", "--save", "m"]):
        assert parse([*words, "--time", "t"]).time == parse([*words, "--time-column=t"]).time == "t"
    assert parse(["compare", "a", "--unlabeled", "--colour", "c"]).unlabelled
    assert str(parse(["predict", "m", "a", "--csv", "b"]).out) == "b"
    short = parse(["compare", "a", "-fqj2", "-o", "b"])
    assert short.force and short.quiet and short.n_jobs == 2 and str(short.out) == "b"


def test_negative_numbers_are_values():
    options = cli._parser().parse_args(["explain", "m", "a", "--row", "-1"])
    assert options.row == "-1"


def test_debug_shows_the_traceback(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "nowhere.csv"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("nearfar compare: error: ") and "Traceback" not in err
    assert main(["compare", "nowhere.csv", "--debug"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("Traceback") and "ValueError: " in err


# ---------------------------------------------------------------------- options of a command


def test_options_are_found_by_their_full_names_only():
    words = ["a", "-oout.html", "-fq", "-j", "2", "--time", "t", "--json=c", "--", "-x"]
    assert parts_of(parser_of("compare"), words) == [
        (None, ["a"]),
        ("--out", ["-oout.html"]),
        ("--force", ["-f"]),
        ("--quiet", ["-q"]),
        ("--jobs", ["-j", "2"]),
        ("--time-column", ["--time", "t"]),
        ("--json", ["--json=c"]),
        (None, ["--"]),
        (None, ["-x"]),
    ]
    assert parts_of(parser_of("compare"), ["--repeat", "3"]) == [
        (None, ["--repeat"]),
        (None, ["3"]),
    ]

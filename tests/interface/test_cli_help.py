"""Help pages and mistyped commands, as a person sees them."""

import re
from pathlib import Path

import click
import pytest

from support.processes.commands import run
from support.processes.pseudo_terminal import at_terminal
from usher.cli.main import COMMAND_SECTIONS, root


def help_of(*words: str) -> str:
    done = run([*words, "--help"], {})
    assert done.code == 0, done.err
    return done.out


def groups() -> list[str]:
    context = click.Context(root)
    commands = {name: root.get_command(context, name) for name in root.list_commands(context)}
    return [name for name, command in commands.items() if isinstance(command, click.Group)]


def test_the_first_section_begins_with_crawl() -> None:
    text = help_of()
    sections = [
        line for line in text.splitlines() if line in {f"{title}:" for title in COMMAND_SECTIONS}
    ]
    assert sections == [f"{title}:" for title in COMMAND_SECTIONS]
    below = text.partition("Crawl and search:\n")[2]
    assert below.split()[0] == "crawl"
    assert "role-process" not in text


@pytest.mark.parametrize("name", ["", *groups()])
def test_no_sentence_is_cut_off_and_every_group_has_examples(name: str) -> None:
    text = help_of(*name.split())
    assert "..." not in text.replace("[ARGS]...", "")
    assert "Examples:" in text


def commands(group: click.Group, *words: str) -> list[tuple[str, ...]]:
    """The words of every command below a group."""
    context, every = click.Context(group), list[tuple[str, ...]]()
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        below = commands(command, *words, name) if isinstance(command, click.Group) else []
        every += below or [(*words, name)]
    return every


def test_help_describes_numbers_in_words_and_fits_a_terminal() -> None:
    for words in commands(root):
        command: click.Command | None = root
        context = click.Context(root)
        for word in words:
            assert isinstance(command, click.Group)
            command = command.get_command(context, word)
        assert command is not None
        text = command.get_help(
            click.Context(command, info_name=" ".join(words), terminal_width=80)
        )
        assert not re.search(r"RANGE|INTEGER|FLOAT|x[<>]|[<>]=?x", text), words
        above = text.partition("Examples:")[0] + text.partition("Options:")[2]
        assert max(map(len, above.splitlines())) <= 80, words
    assert "--max-pages N" in help_of("crawl")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--max-pages", "many"), "'many' is not a valid whole number."),
        (("--max-pages", "0"), "0 is not in the range 1 or more."),
        (("--delay", "slow"), "'slow' is not a valid number."),
        (("--delay", "-1"), "-1.0 is not in the range 0 to 86,400."),
    ],
)
def test_an_invalid_number_is_described_in_words(words: tuple[str, ...], said: str) -> None:
    done = run(["crawl", *words, "https://example.com/"], {})
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_the_version_is_an_option_too() -> None:
    assert run(["--version"], {}).out == run(["version"], {}).out


@pytest.mark.parametrize(
    ("word", "advice"),
    [("help", "usher COMMAND --help"), ("stop", "Ctrl-C"), ("start", "usher up")],
)
def test_a_command_of_other_programs_gets_advice(word: str, advice: str) -> None:
    done = run([word], {})
    assert (done.code, done.out) == (2, "")
    assert f"No such command '{word}'." in done.err
    assert advice in done.err


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        (("crwal",), "'crawl'"),
        (("--vresion",), "'--version'"),
        (("hosts", "lst"), "'list'"),
        (("crawl", "--dela", "1", "https://example.com/"), "'--delay'"),
    ],
)
def test_a_mistyped_word_gets_a_suggestion(words: tuple[str, ...], suggestion: str) -> None:
    done = run(list(words), {})
    assert done.code == 2
    assert "Did you mean" in done.err
    assert suggestion in done.err


def test_a_person_without_experience_is_guided_at_the_terminal() -> None:
    shown = at_terminal()
    sections = [line for line in shown.text.splitlines() if re.fullmatch(r"[A-Z][a-z ]+:", line)]
    assert "Examples:\n" in shown.text
    assert sections[:2] == ["Options:", "Crawl and search:"]
    for words, suggestion in (
        (("crwal", "https://example.com/"), "'crawl'"),
        (("crawl", "--dely", "1", "https://example.com/"), "'--delay'"),
        (("pages", "eror"), "'errors'"),
    ):
        shown = at_terminal(*words)
        assert shown.code == 2
        assert suggestion in shown.text


def test_the_pictures_of_the_readme_show_present_commands() -> None:
    """The recording has the commands that README names, and each of them exists."""
    root_directory = Path(__file__).parents[2]
    readme = (root_directory / "README.md").read_text()
    pictures = re.findall(r"!\[[^\]]+\]\((docs/images/[^)]+)\)", readme)
    assert {Path(picture).suffix for picture in pictures} == {".png", ".svg"}
    assert all((root_directory / picture).is_file() for picture in pictures)
    recording = (root_directory / "docs/images/terminal.svg").read_text()
    recorded = set(re.findall(r"\$ (?:<[^>]*>)*usher (\w+)", recording))
    assert recorded
    assert recorded <= set(root.list_commands(click.Context(root)))

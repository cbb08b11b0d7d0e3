"""What a result shows of a page with sections."""

from usher.index.document import IndexSection
from usher.index.passages import PassageWords, SectionedText, make_passage
from usher.query.tokens import strip_accents

TEXT = """Built-in Functions
These functions are always available, whatever a program imports.
open(file, mode)
Open a file and return it.
close(file)
A file that is open must be closed; open files cost memory.
4.2. for Statements
It goes over the items of a list in order."""
HEADINGS = {"open": "open(file, mode)", "close": "close(file)", "for": "4.2. for Statements"}


def page() -> SectionedText:
    starts = {anchor: TEXT.index(heading) for anchor, heading in HEADINGS.items()}
    ends = [*list(starts.values())[1:], len(TEXT)]
    sections = [
        IndexSection(anchor, heading, starts[anchor], end)
        for (anchor, heading), end in zip(HEADINGS.items(), ends, strict=True)
    ]
    return SectionedText(TEXT, "Built-in Functions - Manual", sections)


def shown(*words: str, keywords: tuple[str, ...] = ()) -> tuple[str, list[str], bool]:
    passage = make_passage(page(), PassageWords(words, keywords), stem=strip_accents)
    text = "".join(text for text, _ in passage.pieces)
    return text, [section.anchor for section in passage.sections], passage.is_from_first


def test_the_section_that_the_query_names_is_shown_from_its_beginning() -> None:
    assert shown("open") == ("Open a file and return it.", ["open"], True)


def test_the_section_of_the_best_passage_comes_first() -> None:
    assert shown("cost", "memory") == (
        "A file that is open must be closed; open files cost memory.",
        ["close"],
        True,
    )


def test_headings_with_fewer_words_than_the_best_are_left_out() -> None:
    assert shown("file", "mode")[1] == ["open"]
    assert shown("file")[1] == ["open", "close"]


def test_a_word_such_as_for_may_be_what_a_section_is_about() -> None:
    assert shown("loop", keywords=("for",))[1] == ["for"]


def test_a_snippet_does_not_repeat_the_title_and_keeps_lines() -> None:
    text, sections, is_from_first = shown("absent")
    assert text.startswith("These functions are always available")
    assert text.splitlines()[1] == "open(file, mode)"
    assert (sections, is_from_first) == ([], False)


def test_a_passage_names_the_forms_of_the_words_in_the_title_and_the_headings() -> None:
    def without_plural(word: str) -> str:
        return word.removesuffix("s")

    title = make_passage(page(), PassageWords(("function",)), stem=without_plural)
    assert (title.sections, title.forms) == ((), ("functions",))
    heading = make_passage(page(), PassageWords(("statement",)), stem=without_plural)
    assert [section.anchor for section in heading.sections] == ["for"]
    assert heading.forms == ("statements",)

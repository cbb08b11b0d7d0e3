"""Snippets highlight the words of the query and are plain text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usher.query.highlight import MAX_TEXT_CHARACTERS, Segment, highlight, make_snippet

LONG = (
    "Nothing of interest is here. " * 40
    + "The planner reads statistics. An index on a column makes the planner choose an index scan. Then it ends. "
    + "More that is not searched. " * 40
    + "An index alone."
)


def plain(segments: list[Segment]) -> str:
    return "".join(text for text, _ in segments)


def marked(segments: list[Segment]) -> list[str]:
    return [text for text, is_marked in segments if is_marked]


def shown(text: str, words: list[str]) -> str:
    return "".join(
        f"[{piece}]" if is_marked else piece for piece, is_marked in highlight(text, words)
    )


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("The Index, indexed", ["index"], "The [Index], indexed"),
        ("a cat and a category", ["cat"], "a [cat] and a category"),
        ("snake_case_name", ["case"], "snake_[case]_name"),
        ("Élève, café", ["eleve", "cafe"], "[Élève], [café]"),
        ("cafe", ["café"], "[cafe]"),
        ("STRASSE Straße", ["strasse"], "[STRASSE] [Straße]"),
        ("東京タワーへ行く", ["東京"], "[東京]タワーへ行く"),
        ("İstanbul istanbul", ["istanbul"], "[İstanbul] [istanbul]"),
        ("<b>bold</b> & <script>", ["bold"], "<b>[bold]</b> & <script>"),
        ("nothing", ["else"], "nothing"),
        ("words words", [], "words words"),
        ("", ["x"], ""),
    ],
)
def test_words_are_highlighted(text: str, words: list[str], expected: str) -> None:
    assert shown(text, words) == expected


def test_other_forms_are_highlighted_with_a_stemmer() -> None:
    segments = highlight(
        "Indexes index indices", ["index"], stem=lambda word: word.removesuffix("es")
    )
    assert marked(segments) == ["Indexes", "index"]


def test_the_passage_with_most_of_the_words_is_shown() -> None:
    segments = make_snippet(LONG, ["index", "planner", "scan"])
    assert marked(segments) == ["planner", "index", "planner", "index", "scan"]
    text = plain(segments)
    assert text.startswith("… ")
    assert text.endswith(" …")
    assert "An index on a column" in text
    assert len(text) < 260


def test_a_phrase_is_preferred_to_separate_words() -> None:
    text = "scan one. index two. " + "filler words. " * 40 + "Choose an index scan now."
    assert "Choose an index scan now." in plain(make_snippet(text, ["index", "scan"]))


def test_the_first_passage_with_the_exact_phrase_is_shown() -> None:
    filler = "Nothing else to see here. " * 20
    text = f"An index scanner. {filler}Now an index scan, a Scan. {filler}{'Index! Scan! ' * 90}"
    segments = make_snippet(text, ["index", "scan"])
    assert "Now an index scan, a Scan." in plain(segments)
    assert marked(segments) == ["index", "scan", "Scan"]


def test_without_a_match_the_beginning_is_shown() -> None:
    text = plain(make_snippet(LONG, ["absent"]))
    assert text.startswith("Nothing of interest")
    assert text.endswith("…")
    assert make_snippet("Short.", ["absent"]) == [("Short.", False)]


def test_direction_marks_are_removed() -> None:
    segments = make_snippet("ev\u202eil\x00\x1b[31m\n\n text\u2066 \ud800 here", ["text"])
    assert plain(segments) == "ev il [31m\ntext here"
    assert marked(segments) == ["text"]


@given(st.text(max_size=400), st.lists(st.text(max_size=8), max_size=6), st.integers(20, 300))
def test_any_text_gives_a_short_clean_snippet(text: str, words: list[str], size: int) -> None:
    segments = make_snippet(text, words, size=size)
    whole = plain(segments)
    assert len(whole) <= size + 64
    assert "  " not in whole
    assert whole == whole.strip()
    assert all(piece for piece, _ in segments)
    assert whole.replace("\n", "").isprintable() or not text.isprintable()


def test_only_the_beginning_of_a_long_text_is_scanned() -> None:
    text = "x " * MAX_TEXT_CHARACTERS + "needle"
    assert not marked(make_snippet(text, ["needle"]))
    assert plain(make_snippet("y" * MAX_TEXT_CHARACTERS, ["yyy"])).endswith("…")

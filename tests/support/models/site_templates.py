"""The rule for the lines of a site's template, as work.update_templates has it."""

from collections import Counter
from collections.abc import Mapping

from usher.messages.builder import PageSample

MAX_SAMPLED_PAGES = 32
MAX_TEMPLATE_LINES = 500


def template_of(samples: Mapping[int, PageSample]) -> set[int]:
    """Return the lines that enough different pages have."""
    pages = {sample.body: set[int]() for sample in samples.values()}
    for sample in samples.values():
        pages[sample.body].update(sample.lines)
    counts = Counter(line for lines in pages.values() for line in lines)
    least = max(4, (len(pages) + 7) // 8)
    ranked = sorted((-count, line) for line, count in counts.items() if count >= least)
    return {line for _, line in ranked[:MAX_TEMPLATE_LINES]}

"""English words that say nothing about the subject of a page: Snowball's list.

Tantivy has Snowball's lists for other languages, but only 33 words for English. With this list nDCG@10 was higher by
1 to 5 % on all four judged collections (docs/adr/0026).
"""

from typing import Final

_WORDS: Final = """
    a about above after again against all am an and any are as at be because been before being below between
    both but by can could did do does doing down during each few for from further had has have having he her
    here hers herself him himself his how i if in into is it its itself just me more most must my myself no
    nor not now of off on once only or other ought our ours ourselves out over own same shall she should so
    some such than that the their theirs them themselves then there these they this those through to too under
    until up very was we were what when where which while who whom why will with would you your yours yourself
    yourselves
"""
ENGLISH_STOP_WORDS: Final = frozenset(_WORDS.split())

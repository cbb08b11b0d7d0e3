"""Runs in the venv of bm25s: reads pages and queries from stdin, writes the ids of the best pages for each query."""

import sys

# bench/ comes last: bench/queue.py must not hide the standard module queue.
sys.path.append(sys.path.pop(0))

import json

import bm25s
import Stemmer


def main() -> None:
    request = json.load(sys.stdin)
    names, texts = zip(*request["pages"], strict=True)
    stemmer = Stemmer.Stemmer("english")
    tokens = bm25s.tokenize(list(texts), stopwords="en", stemmer=stemmer, show_progress=False)
    retriever = bm25s.BM25()
    retriever.index(tokens, show_progress=False)
    queries = bm25s.tokenize(
        request["queries"], stopwords="en", stemmer=stemmer, show_progress=False
    )
    limit = min(request["limit"], len(names))
    rows, scores = retriever.retrieve(queries, k=limit, show_progress=False)
    answers = [
        [names[row] for row, score in zip(hits, values, strict=True) if score > 0]
        for hits, values in zip(rows, scores, strict=True)
    ]
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()

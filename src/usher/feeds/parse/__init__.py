"""Parses feeds: RSS, Atom, RDF and JSON Feed become one model."""

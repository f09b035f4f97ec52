"""Extraction by rule: what a message tells that is worth keeping, without a model. Pure functions.

From top to bottom: `facts` (a message in, facts out), `endings` ("no longer"), `about_user`, `about_project` and
`instructions` (a sort of statement each), `about_identity` and `about_life` (the tables of `about_user`), `claims` (what is meant
in earnest), `phrases`, `person` (first to third person), `slots` (which key a value fills), `sentences`, `dates`, and
`vocabulary`: the words, to be extended freely.
"""

from .facts import extract_facts

__all__ = ["extract_facts"]

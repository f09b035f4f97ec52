"""Facts in English text, by rule: no model, a fraction of a millisecond per sentence. Pure functions.

A message flows through it like this:

1. `claims` splits it into sentences, drops questions, hypotheses, role play and hearsay, spells out contractions (`person`),
   and cuts each remaining claim into clauses about the speaker.
2. Rules read a claim or a clause: `about_project` (decisions, tools, lessons), `instructions` (wishes about answers),
   `endings` ("no longer"), `about_user` (identity, home, work) with `about_life` (family, health, likes, plans). Each rule
   returns a `phrases.Finding`, or None. `phrases` knows which slot a value fills; `vocabulary` holds the words.
3. `facts` tries the rules in order, adds the owner of the slot, and writes the fact in the third person (`person`).

Others import `extract_facts`, and from `person` what turns sentences. It knows no memory and no store.
"""

from .facts import extract_facts

__all__ = ["extract_facts"]

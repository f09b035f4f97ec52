"""Sentences from the first person to the third and back: "I prefer my own", "The user prefers their own". Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...core.lazy_regex import lazy
from .vocabulary import pairs, words

_USER, _TEAM = "the user", "the user's team"

_CONTRACTIONS = pairs(
    """
    i'm = I am, im = I am, i've = I have, ive = I have, i'd = I would, i'll = I will, we're = we are, we've = we have,
    we'd = we would, we'll = we will, can't = cannot, cant = cannot, won't = will not, don't = do not, dont = do not,
    doesn't = does not, doesnt = does not, didn't = did not, didnt = did not, isn't = is not, aren't = are not,
    wasn't = was not, weren't = were not, haven't = have not, hasn't = has not, hadn't = had not,
    wouldn't = would not, couldn't = could not, shouldn't = should not, it's = it is, that's = that is,
    there's = there is, he's = he is, she's = she is, they're = they are, you're = you are, let's = let us,
    gonna = going to, wanna = want to
    """
)
_WORD = lazy(r"[\w]+(?:'[\w]+)*|[^\w]+")

_IRREGULAR = {"am": "is", "are": "is", "have": "has", "do": "does", "go": "goes", "were": "was"}
_FIXED = words(
    """
    is, was, had, did, went, got, gave, took, made, came, saw, knew, thought, told, found, left, felt, kept, began,
    brought, bought, caught, chose, drew, drove, ate, fell, flew, forgot, grew, heard, held, lost, met, paid, ran, said,
    sat, sold, sent, spent, stood, taught, understood, woke, won, wrote, became, built, broke, quit, cut, hit, spoke,
    slept, swore, threw, wore, led, rode, rose, swam, drank, sang, can, cannot, could, will, would, may, might, must,
    shall, should, used, lent, hurt, bit, froze, hid, shook, stole, beat, hung, set, shut, stuck, swung, fed, bred, fled
    """
)
_NOT_PAST = words("need, feed, speed, breed, bleed, seed, weed, exceed, proceed, succeed")
_BETWEEN = words(
    """
    just, also, now, still, always, never, often, usually, sometimes, only, even, already, once, first, mostly, both,
    currently, much, no, longer, finally, all, not, rather, rarely, again, soon, recently, actually, really, simply,
    then, too, ever, almost
    """
)
_NOT_ADVERBS = words("fly, apply, rely, reply, supply, multiply, ally, bully, tally, rally, comply, imply, ply")

_LATER = {"i": "they", "me": "them", "my": "their", "mine": "theirs", "myself": "themselves"}
_LATER |= {"we": "they", "us": "them", "our": "their", "ours": "theirs", "ourselves": "themselves"}
_NAMED = {"i": "{}", "me": "{}", "my": "{}'s", "mine": "{}'s", "myself": "{}"}
_NAMED |= {"we": "{}", "us": "{}", "our": "{}'s", "ours": "{}'s", "ourselves": "{}"}
_TO_ASSISTANT = {
    "you": "the assistant",
    "your": "the assistant's",
    "yours": "the assistant's",
    "yourself": "the assistant",
}


def spelled_out(text: str) -> str:
    """Return a text with its contractions spelled out: "I am" for "I'm", "do not" for "don't"."""
    text = re.sub(r"\b(it|he|she|that|there)'s (?=been|got)\b", r"\1 has ", text, flags=re.IGNORECASE)
    return "".join(_spelled_out(word) for word in _WORD.findall(text))


def third_person(text: str, *, together: bool = False) -> str:
    """Return a statement in the first person, spelled out, as a sentence about the user that can be understood on its own.

    If `together`, "we" means the user's team, rather than the user and the family.
    """
    tokens = _WORD.findall(text.strip())
    told: list[str] = []
    subject = False  # whether the user is the subject: then "they" is unambiguous
    named = False
    for at, word in enumerate(tokens):
        pronoun = word.lower()
        if pronoun in ("both", "all") and at > 1 and tokens[at - 2].lower() == "we" and not together:
            continue
        if pronoun == "i" and not any(following[:1].isalpha() for following in tokens[at + 1 : at + 3]):
            told.append(word)  # World War I
        elif word == "US" or pronoun not in _LATER:
            told.append(_TO_ASSISTANT.get(pronoun, word))
        elif subject or (named and pronoun in ("my", "mine", "our", "myself", "ourselves")):
            told.append(_LATER[pronoun])
            if pronoun in ("i", "we"):
                _agree(tokens, at, {"am": "are", "was": "were"})
        else:
            told.append(_NAMED[pronoun].format(_TEAM if together and pronoun in ("we", "us") else _USER))
            named = True
            if pronoun in ("i", "we"):
                subject = True
                _agree(tokens, at, None)
    return _sentence("".join(told))


def first_person(text: str, names: Iterable[str] = ()) -> str:
    """Return a statement about the user, also under other names, as the user would have made it; any other text unchanged.

    >>> first_person("Sarah often uses their own laptop", ["Sarah"])
    'I often use my own laptop'
    """
    called = "|".join(re.escape(name) for name in ("the user", "user", *names))
    found = re.match(rf"(?:{called})(?P<own>['’]s)?\s+(?P<rest>.+)", text, re.IGNORECASE | re.DOTALL)
    if found is None:
        return text
    rest = re.sub(r"\btheir\b", "my", found["rest"])
    if found["own"]:
        return f"My {rest}"
    tokens = _WORD.findall(rest)
    verb = next((at for at, word in enumerate(tokens) if word[:1].isalpha() and not is_adverb(word)), 0)
    tokens[verb] = first_form(tokens[verb])
    return f"I {''.join(tokens)}"


def third_form(verb: str) -> str:
    """Return the form of a verb after "the user": "lives" for "live"."""
    bare = verb.lower()
    if bare in _IRREGULAR:
        return _IRREGULAR[bare]
    if bare in _FIXED or (bare.endswith("ed") and bare not in _NOT_PAST):
        return verb
    if re.search(r"(?:s|x|z|ch|sh|o)$", bare):
        return f"{verb}es"
    return f"{verb[:-1]}ies" if re.search(r"[^aeiou]y$", bare) else f"{verb}s"


def first_form(verb: str) -> str:
    """Return the form of a verb after "I": "live" for "lives", "am" for "is"."""
    bare = verb.lower()
    known = {"is": "am", "are": "am", "has": "have", "does": "do", "goes": "go", "was": "was", "plus": "plus"}
    if bare in known:
        return known[bare]
    if bare.endswith("ies"):
        return f"{verb[:-3]}y"
    if re.search(r"(?:ss|x|zz|ch|sh)es$", bare):
        return verb[:-2]
    return verb[:-1] if bare.endswith("s") and not bare.endswith("ss") else verb


def plain_form(gerund: str) -> str:
    """Return the form of a verb after "I", from its -ing form: "use" for "using", "run" for "running"."""
    stem = gerund[:-3]
    if re.search(r"([bdgmnprt])\1$", stem):
        return stem[:-1]
    if stem.lower() in _NEEDS_E or re.search(r"(?:[^aeiou]iv|rv|s|ok|ak|ang|nc|at|yp|id|iz|ag)$", stem):
        return f"{stem}e"
    return stem


_NEEDS_E = words(
    """
    us, liv, driv, smok, tak, mak, writ, danc, hav, giv, com, bak, cycl, hik, skat, practic, studi, typ, cod, rid,
    manag, leas, shar
    """
)


def is_adverb(word: str) -> bool:
    """Return whether a word may stand between "I" and its verb."""
    bare = word.lower()
    return bare in _BETWEEN or (bare.endswith("ly") and len(bare) > 4 and bare not in _NOT_ADVERBS)


def _spelled_out(word: str) -> str:
    full = _CONTRACTIONS.get(word.lower())
    if full is None:
        return "I" if word == "i" else word
    return full[:1].upper() + full[1:] if word[:1].isupper() and not full.startswith("I ") else full


def _agree(tokens: list[str], subject: int, forms: dict[str, str] | None) -> None:
    """Change the verb after a subject so that it agrees with the new subject."""
    for at in range(subject + 1, len(tokens)):
        word = tokens[at]
        if not word[:1].isalpha():
            if word.strip(" "):
                return  # "I, for one, …"
        elif not is_adverb(word):
            tokens[at] = third_form(word) if forms is None else forms.get(word.lower(), word)
            if (
                forms is None
                and [part.strip() for part in tokens[at + 1 : at + 4]] == ["", "and", ""]
                and len(tokens) > at + 4
            ):
                tokens[at + 4] = third_form(tokens[at + 4])  # "I practice and train"
            return


def _sentence(text: str) -> str:
    text = " ".join(text.split()).rstrip(" ,;:-–—.!")
    return f"{text[:1].upper()}{text[1:]}." if text else ""

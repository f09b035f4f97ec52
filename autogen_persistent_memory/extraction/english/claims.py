"""The sentences of a message that state something, and their clauses: no questions, hypotheses, play or hearsay. Pure functions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import takewhile

from ...core.lazy_regex import lazy
from ...text.sentences import own_sentences
from .person import is_adverb, spelled_out
from .vocabulary import pattern

_I = re.IGNORECASE

_MAKE_BELIEVE = pattern(
    r"\b(?:pretend|role[ -]?play|act as|acting as|as if (?:i|my|we)|as though (?:i|my|we)|imagine|let us (?:say|assume"
    r"|suppose|pretend|play|imagine)|for (?:this|the) (?:exercise|scenario|game|sake)|in (?:my|the|this|our"
    r"|a) (?:story|novel|game|book|scenario|play|movie|film|script|dream|campaign|simulation|song|scene|sketch"
    r"|fiction)|you are (?:a|an|the|my|now)\b(?! (?:great|good|star|lifesaver|genius|best|hero|legend))"
    r"|play the (?:role|part)|your name is|in character|dungeon master|fictional|hypothetical(?:ly)?)\b"
)
"""If a sentence matches, the rest of the message is make-believe."""

_OPENS_QUESTION = pattern(
    r"(?:and |but |so |then |or )?(?:what|which|who|whom|whose|where|why|how|when (?:is|are|do|does|did|will|should"
    r"|can|was)|do(?! not\b(?! (?:i|you|we)\b))|does|did|am|is|are|was|were|can|could|should|would|will|shall"
    r"|have (?:i|you|we)|has|may i|any|isn't|aren't|don't you|is not|are not|do not (?:i|you|we))\b"
)
_TAG_QUESTION = pattern(
    r"(?:^|[\s,])(?:right|correct|no|yes|huh|eh|okay|ok|(?:do|is|are|am|have|did|was|does|has|will|would|can)(?:n't"
    r"| not)? (?:i|we|it|you|he|she|they)(?: not)?)\s*\?+$"
)
_BEFORE_QUESTION = lazy(
    r",\s+|\s+[-–—]+\s+|;\s*|\s+(?:so|and|but)\s+(?=(?:what|which|where|how|can|could|should|would|do|is|are)\b)"
)
_UNREAL_SENTENCE = pattern(
    r"(?:even )?(?:if|unless|imagine|suppose|supposing|assume|assuming|maybe|perhaps|say (?:i|we|my)|what if|in theory"
    r"|once i|until i|as soon as|ideally|hopefully|it is not true|it is not that|not that)\b|(?:he|she|they|it|people"
    r"|someone|somebody|everyone|everybody|nobody|you|folks|[A-Z][a-z]+|(?:my|our|the|his|her|their"
    r"|a) [\w-]+) (?:\w+ )?(?:says?|said|told|tells|thinks?|thought|claims?|claimed|wrote|asked|asks|believes?"
    r"|insists?|heard|suggested|suggests|wants|wanted|reckons)\b|according to\b|rumou?r\b|i (?:once )?(?:read|heard"
    r"|dreamt|dreamed|dreamt) that\b"
)
_UNREAL_CLAUSE = pattern(
    r"\b(?:maybe|perhaps|might|could|probably|possibly|someday|some day|one day|hypothetically|supposedly|apparently"
    r"|wish|hope|hoping|imagine|suppose|(?:thinking|dreaming) (?:about|of)|considering|(?:not|never) (?:said|say|sure"
    r"|think|believe|claimed|told)|not want|want to|wants to|wanted to|used to(?! \w+ing)|would(?! (?:rather|prefer"
    r"|like (?:\w+ ){0,3}(?:answers|replies|responses|explanations|summaries)))|should|shall|must|doubt|i think"
    r"|we think|i guess|i believe|i feel like|i assume|i said|i told|i meant|seems?|looks like|feels like|as if"
    r"|like to think|pretending|whether|kidding|joking|tempted|afraid|need (?:a|an|to|help|you|some)|almost|nearly"
    r"|plan(?:ning)? to (?:maybe|possibly)|trying to|if (?!possible|you can|necessary|needed|that is ok))\b"
)
_LEAD_IN = pattern(
    r"(?:(?:hi|hey|hello|hiya)(?: (?:there|all|everyone|again|team))?|good (?:morning|evening|afternoon)"
    r"|thanks(?! to\b)(?: a lot| for \w+ ?\w*)?|thank you|ok|okay|well|yes|yeah|yep|yup|no|nope|sure|right|oh|ah|hmm"
    r"|great|perfect|cool|nice|sorry|also|btw|by the way|actually|anyway|fyi|ps|p\.s\.|for your information"
    r"|(?:just )?so you know|for (?:the record|context|reference|future reference|background|what it is worth)"
    r"|to be (?:clear|honest|fair)|tbh|honestly|frankly|personally|as (?:i (?:said|mentioned)|you know|mentioned"
    r"|always)|(?:please )?note that|(?:please )?note|update|context|background|heads up|in case it (?:helps|matters)"
    r"|first(?:ly| of all)?|second(?:ly)?|third(?:ly)?|finally|lastly|and|but|plus|so|since|because(?! of\b)"
    r"|given(?: that)?|seeing that|now that|considering that|oh and|i (?:should|must) (?:mention|add|say)(?: that)?"
    r"|i (?:forgot|wanted|want|need|have) to (?:mention|say|add|tell you|admit)(?: that)?|let me (?:tell you"
    r"|add)(?: that)?|you should know(?: that)?|know that|(?:one|another|last|quick) (?:more )?(?:thing|note|update)"
    r"|it (?:turns|turned) out(?: that)?|turns out(?: that)?|the (?:thing|hint|point|fact|problem|truth) is(?: that)?"
    r"|(?:some )?(?:things|facts|info) about me|about me|good news|bad news|big news|guess what|i mean"
    r"|however)(?:[,:!.\s–—-]+|$)"
)
_EXPLICIT = pattern(
    r"(?:please |also |and |so )*(?:(?:can|could) you (?:please )?)?(?:(?:always )?remember|do not forget|never forget"
    r"|keep in mind|bear in mind|memori[sz]e|make a (?:mental )?note|take note|note down|save)(?: (?:that|this:"
    r"|the following:) ?:?| ?:|(?= (?:i|my|we|our)\b)) *(?=\S)"
)
_TRAILING = pattern(
    r"(?:,?\s+(?:by the way|btw|please|thanks|thank you|you know|hands down|fyi|nice to meet you|just so you know"
    r"|if possible|lol|haha|tbh|to be honest|to be fair|:\)|;\))[.!]*)+$"
)
_ASIDE = pattern(
    r"(?:,| -+| –| —)\s+(?:it|they|so|which|he|she|things|this|that is|'cause|mostly because|plus|lol|everybody"
    r"|everyone)\b.*$"
)
_SUBJECT = r"(?:I|we|my|our)\b(?!\s+and\b)"
_BOUNDARY = pattern(
    rf"(?:\s*[,;]\s*|\s+[-–—]+\s+|\s+(?=and\b|but\b|so\b|while\b|although\b|though\b))(?:and|but|so|plus|also|while"
    rf"|although|though|whereas|as|because)?\s*,?\s*(?:also\s+|then\s+|now\s+)?(?={_SUBJECT})"
)
_ELIDED = pattern(
    r"\s*,?\s+(?:and|but)\s+(?:(?:also|now|currently|mostly|still|just)\s+)*(?=(?:live|work|love|like|hate|prefer|use"
    r"|have|own|speak|play|drive|study|am|enjoy|drink|moved|started|joined|switched|went with|chose|picked|adopted"
    r"|have been|do not|deploy|cannot)\b)"
)
_REASON = pattern(r"\b(?:because|since|so that|in order|if|when|who|which|where|that)\b")
_OPENING = pattern(
    r"((?:last|next|this|since|in|on|at|for|when|whenever|as of|these|those|after|before|two|three|a|right|over|until"
    r"|every|over|right|lately|recently|currently|nowadays|today|yesterday|tomorrow|now|since|as|instead of"
    r"|because of|due to|thanks to)\b[^,.;]{0,60}?,?\s+)(?=(?:I|we|my|our)\b)"
)


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence that states something, with contractions spelled out and without lead-ins such as "by the way"."""

    text: str
    explicit: bool = False
    """Whether the user asked to remember it."""


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause of a claim: an opening ("last month"), and its text."""

    opening: str
    text: str

    @property
    def whole(self) -> str:
        return f"{self.opening}{self.text}"


def claims(text: str) -> list[Claim]:
    """Return the sentences of a message that state something."""
    claimed: list[Claim] = []
    for sentence in own_sentences(text):
        said = spelled_out(sentence)
        if _MAKE_BELIEVE.search(said) or said.startswith(("Dear ", "To whom")):
            break
        claim = _claim(said)
        if claim is not None:
            claimed.append(claim)
    return claimed


def clauses(claim: Claim) -> list[Clause]:
    """Return the clauses of a claim, cut before each further "I", "we", "my" or "our", without wishes and guesses."""
    found: list[Clause] = []
    for part in _parts(claim.text):
        part = _without_lead_in(part)
        opening = _OPENING.match(part)
        start = opening.end() if opening else 0
        clause = Clause(part[:start], _ASIDE.sub("", part[start:]))
        if clause.text and not is_unreal(clause.text):
            found.append(clause)
    return found


def is_unreal(clause: str) -> bool:
    """Return whether a clause tells a wish, a guess or a possibility, other than in its reason."""
    reason = re.search(r"\b(?:because|since|so that|in order)\b", clause, _I)
    return _UNREAL_CLAUSE.search(clause[: reason.start()] if reason else clause) is not None


def without_adverbs(predicate: str) -> str:
    """Return a predicate without adverbs around its verb: "love tea" for "really love tea", "am using" for "am now using"."""
    words = predicate.split(" ")
    while len(words) > 1 and is_adverb(words[0]) and words[0].lower() != "never":
        del words[0]
    if words[0].lower() in ("am", "are", "have", "was", "were", "do", "will", "would"):
        while (
            len(words) > 2
            and words[1].lower() != "not"
            and words[1:3] != ["no", "longer"]
            and words[1] != "rather"
            and is_adverb(words[1])
        ):
            del words[1]
    return " ".join(words)


def _claim(said: str) -> Claim | None:
    asked = said = _without_lead_in(_TRAILING.sub("", said))
    explicit = _EXPLICIT.match(said)
    if explicit:
        said = _without_lead_in(said[explicit.end() :])
        if said.endswith("?") and re.match(r"(?:can|could)\b", asked, _I):
            said = said.rstrip("?")  # "can you remember that …?"
    if said.endswith("?"):
        said = _before_question(said)
    elif _OPENS_QUESTION.match(said) and not re.match(r"(?:Will|May|Mark|Is)\s+[A-Z]", said):
        return None
    if not said or _UNREAL_SENTENCE.match(said):
        return None
    return Claim(said.rstrip(" ,;.!"), explicit is not None)


def _before_question(said: str) -> str:
    """Return what a sentence states before it asks: "I am vegan" of "I am vegan, what can I eat?"."""
    if _TAG_QUESTION.search(said):
        return ""
    parts = _BEFORE_QUESTION.split(said)
    return ", ".join(takewhile(lambda part: not (_OPENS_QUESTION.match(part) or part.endswith("?")), parts))


def _without_lead_in(said: str) -> str:
    for _ in range(4):
        lead_in = _LEAD_IN.match(said)
        said = said[lead_in.end() :].lstrip() if lead_in else said
    return said


def _parts(text: str) -> list[str]:
    """Return a claim, cut where a new clause about the speaker starts, but not within a reason."""
    parts: list[str] = []
    start = 0
    for boundary in _BOUNDARY.finditer(text):
        if not _REASON.search(text, start, boundary.start()):
            parts.append(text[start : boundary.start()])
            start = boundary.end()
    parts.append(text[start:])
    return [piece for part in parts for piece in _shared_subject(part)]


def _shared_subject(part: str) -> list[str]:
    """Return a clause as two, if its second verb shares the subject of the first: "I live here and work there"."""
    subject = re.match(r"(?:I|we)\b", part, _I)
    elided = _ELIDED.search(part)
    if (
        subject is None
        or elided is None
        or re.search(r"\bto [a-z]+|\bnot\b|\b(?:you|they|he|she|it|people|them)\b", part[: elided.start()])
        or _REASON.search(part[: elided.start()])
    ):
        return [part]
    return [part[: elided.start()], f"{subject[0]} {part[elided.end() :]}"]

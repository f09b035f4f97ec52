"""Whether a text tells something, or only greets, thanks and agrees. Pure functions."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from ..core.lazy_regex import lazy
from ..core.records import Draft, MemoryRecord
from .words import CJK, STOP_WORDS, names_within

_WORD = lazy(r"\w+")
_SHORT = 200
"""Characters beyond which a text is taken to tell something, whatever its words are."""
_PLEASANTRIES = frozenset(
    """
    absolutely agreed agree ah aha alright amazing appreciated awesome aye brilliant bye certainly cheers cool correct
    damn definitely done exactly excellent fab fair fantastic fine glad good goodbye goodnight gosh gotcha great haha
    hello hey hi hiya hmm hooray huh indeed k kk lol lovely nah nice nope noted oh ok okay ooh oops perfect please pls
    really right roger sorry splendid sup super sure ta thank thanks thankyou thx totally true tysm understood welcome
    well wonderful wow yay yea yeah yep yes yo yup
    bitte dank danke einverstanden genau gerne gern gut hallo ja jawohl klar moin nein prima schön sehr servus stimmt
    tschüss verstanden vielen
    acuerdo adiós bien bueno claro entendido gracias hola muchas perfecto sí vale
    accord adieu beaucoup bonjour bonsoir compris entendu merci non oui parfait plaît salut svp très
    certo entendi obrigada obrigado olá oi sim tchau
    """.split()  # noqa: SIM905
)
"""Words of greetings, thanks and assent: a message of only these tells nothing."""
_SET_PHRASE = lazy(
    r"\b(?:(?:good|have a (?:nice|good|great|lovely)|enjoy your) (?:morning|afternoon|evening|night|day|weekend|one)|good luck"
    r"|(?:a lot|so much|see you(?: later)?|no problem|no worries|of course|my pleasure|you bet|wait)"
    r"|(?:that |it )?(?:helps(?: a lot)?|works(?: for me)?|makes sense|sounds good)|got it|i (?:see|appreciate it)"
    r"|guten (?:morgen|tag|abend)|gute nacht|alles klar|buenos días|buenas (?:tardes|noches)|por favor|de acuerdo|muito bem"
    r"|bom dia|boa (?:tarde|noite)|bonne (?:nuit|journée|soirée)|s'il (?:vous|te) plaît|d'accord)\b",
    re.IGNORECASE,
)
_SPACELESS_PLEASANTRY = lazy(
    "ありがとう(?:ございま(?:す|した))?|お願いします|おねがいします|おはよう(?:ございます)?|こんにちは|こんばんは|さようなら"
    "|すみません|ごめん(?:なさい)?|わかりました|分かりました|了解(?:です|しました)?|はい|いいえ|うん|そうです|いいです"
    "|谢谢(?:你|您)?|謝謝(?:你|您)?|不客气|你好|您好|早上好|晚上好|晚安|再见|好的|可以|没问题|沒問題|知道了|明白(?:了)?|是的|好"
    "|안녕(?:하세요|히)?|감사(?:합니다|해요)?|고마워(?:요)?|네|예|아니(?:요|오)?|좋아(?:요)?|알겠(?:습니다|어요)"
    "|[はねよわかなのです啊呀吧哦嗯啦嘛呢了吗요]"
)


def tells(text: str) -> bool:
    """Return whether a text holds a content word, a number or a name apart from function words, greetings and assent."""
    return len(text) > _SHORT or _beyond_pleasantries(text)


def is_trivial(item: Draft | MemoryRecord) -> bool:
    """Return whether a captured message tells nothing: it stays in its session, but is never recalled."""
    return item.kind == "interaction" and item.origin in ("user", "agent") and not tells(item.content)


@lru_cache(maxsize=4096)
def _beyond_pleasantries(text: str) -> bool:
    text = _SET_PHRASE.sub(" ", unicodedata.normalize("NFKC", text))
    for word in _WORD.findall(text.casefold()):
        if CJK.search(word):
            word = _SPACELESS_PLEASANTRY.sub("", word)
        if word and word not in STOP_WORDS and word not in _PLEASANTRIES:
            return True
    return any(name.casefold() not in _PLEASANTRIES for name in names_within(text))

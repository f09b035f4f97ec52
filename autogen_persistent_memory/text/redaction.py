"""Secrets out of a text before it is stored: API keys, passwords, card numbers, private keys. A pure function.

Every pattern is anchored at a literal and bounded in length, so that a megabyte takes a moment, whatever is in it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from ..core.checks import decode_json, encode_json
from ..core.lazy_regex import lazy
from ..core.records import JSON, Draft, MemoryRecord
from .pieces import replaced

_PRIVATE_KEY_BEGIN = lazy(r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_PRIVATE_KEY_END = lazy(r"-----END (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----")

_JWT = lazy(
    r"(?<![\w-])(?=[\w-]{11,3000}\.[\w-]{8})"  # looked for once a word, however often that may begin like one
    r"(?P<before>[\w-]{0,1000}?)\beyJ[\w-]{8,2000}\.[\w-]{8,4000}(?:\.[\w-]{0,2000})?"
)
_API_KEY = lazy(
    r"""
      \bsk-(?:proj-|ant-|svcacct-|or-
    |live-)?(?=[\w-]{0,60}\d)[\w-]{16,400}     # OpenAI, Anthropic and others of their sort
      | \b[sr]k_(?:live|test)_[A-Za-z0-9]{10,200}                               # Stripe
      | \bgh[pousr]_[A-Za-z0-9]{20,255} | \bgithub_pat_\w{20,255}               # GitHub
      | \bglpat-[\w-]{16,100}                                                   # GitLab
      | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b                                           # AWS
      | \bxox[abeoprs]-[\w-]{10,250} | \bxapp-[\w-]{10,250}                     # Slack
      | \bAIza[\w-]{30,60}                                                      # Google
      | \bya29\.[\w-]{20,500}
      | \bhf_[A-Za-z0-9]{20,100}                                                # Hugging Face
      | \bnpm_[A-Za-z0-9]{30,60} | \bpypi-[\w-]{40,300}
      | \bSG\.[\w-]{16,40}\.[\w-]{20,80}                                        # SendGrid
      | \bkey-[0-9a-f]{32}\b                                                    # Mailgun
      | \bdop_v1_[0-9a-f]{40,80} | \bgsk_[A-Za-z0-9]{30,80} | \bxai-[A-Za-z0-9]{30,120}
      | \btvly-[\w-]{16,80} | \br8_[A-Za-z0-9]{30,60} | \bck-[A-Za-z0-9]{30,80}
    """,
    re.VERBOSE,
)
_BEARER = lazy(r"\b(Bearer|Basic|Token)(\s{1,3})(?=[\w.~+/-]{0,200}\d)([\w.~+/-]{16,4000}={0,2})", re.IGNORECASE)
_CONNECTION = lazy(r"\b([a-z][a-z0-9+.-]{1,30}://[^\s:/@]{0,100}:)([^\s/@]{1,200})(@)", re.IGNORECASE)

_SECRET_NAME = (
    r"(?:pass(?:word|wd|phrase|code)|(?:seed|recovery)[_ -]?phrase|pwd|secret(?:[_ -]?(?:key|access[_ -]?key))?|api[_ -]?key"
    r"|access[_ -]?key(?:[_ -]?id)?|access[_ -]?token|auth[_ -]?token"
    r"|refresh[_ -]?token|client[_ -]?secret|private[_ -]?key|bot[_ -]?token|token|pin(?: code)?|cvv|cvc)"
)
_VALUE = r"(?:(?P<quote>[\"'`])(?P<quoted>[^\"'`\n]{3,200})(?=(?P=quote))|(?P<bare>[^\s\"'`,;]{3,400}))"

_NEVER = (  # noqa: SIM905 (words read best as words)
    "a an the this that these those it its he she they we you i me my your our their his her us them who what which when "
    "where why how if then else because since so as at by for from in into of on onto off out over to under up with without "
    "about after before and or but nor yet than too very just only also again still already now here there is are was were "
    "be been being am do does did done has have had will would shall should can could cannot may might must not no never none "
    "any all each every some both either neither one same new old current least most more less "
    "don doesn didn isn aren wasn weren won wouldn shouldn couldn hasn haven hadn "
    "required optional mandatory missing invalid incorrect wrong expired empty unset unknown unchanged hidden masked encrypted "
    "hashed stored saved forgotten lost reset changed rejected accepted protected sent leaked tbd redacted "
    "str string bytes secretstr varchar char text bool boolean nullable null undefined"
).split()
"""What is no secret after a colon: words that hold sentences together, what is said of a password, and types."""
_STARTS = (  # noqa: SIM905
    "click enter type choose pick use see check change create update remember keep store please try make ask contact note "
    "ensure verify confirm avoid set get send let press user users people field form input page policy rules minimum maximum"
).split()
"""What is none where a sentence goes on after it."""
_ASSIGNED = lazy(
    rf"(?<![A-Za-z])(?P<name>{_SECRET_NAME}[\"']?\s{{0,3}}(?:=>|:=|==?|(?P<colon>:))\s{{0,3}})"
    rf"(?P<lead>(?(colon)(?:(?:{'|'.join((*_NEVER, *_STARTS))})\b[:,]?\s{{1,3}}){{0,4}})){_VALUE}",
    re.IGNORECASE,
)
_SPOKEN = lazy(
    rf"\b(?P<name>{_SECRET_NAME}(?:\s(?:for|to|of|on)\s(?:[\w.'-]{{1,30}}\s){{1,4}}|\s)(?:is(?:\snow)?"
    rf"|was|=)\s{{1,3}}){_VALUE}",
    re.IGNORECASE,
)
_PHRASE = lazy(
    r"(?<![A-Za-z])(?P<name>(?:passphrase|(?:seed|recovery)[_ -]?phrase)\s{0,3}(?::|=|\sis)\s{1,3})"
    r"(?P<words>(?:[a-z]{3,12}[ -]){3,23}[a-z]{3,12})(?=\s{0,20}(?:[.,;\n]|$))",
    re.IGNORECASE,
)
_MNEMONIC = 12
"""So many words are no sentence if none is shorter than three letters."""
_WORD = lazy(r"[(\[]*([A-Za-z]+)(?:[(\[<][\w.|]*)?[)\]>?!.:*|]*$")
"""A word, as a sentence or a signature has it: with brackets and stops."""
_GOES_ON = lazy(r"\s*['’](?:t|s|re|ve|ll|d)\b|[:,]?[^\S\n]{1,3}\w")
_MIXED = lazy(
    r"(?!\w+://)(?![\w.+-]+@[\w-]+\.)(?=[^\s/]{5,}$)(?=.*[A-Za-z])(?=.*(?:\d|[!@#$%^&*+=~].)).*[\w!@#$%^&*+=~]"
)
"""What no word looks like, nor an address, a path or a number."""
_KIND = lazy(r"pin|cv[vc]|key|token|secret|pass|pwd", re.IGNORECASE)
_KINDS = {"key": "api-key", "token": "token", "secret": "secret", "pin": "pin", "cvv": "pin", "cvc": "pin"}
_WEAK_NAME = lazy(r"(?:token|pin|secret)\b", re.IGNORECASE)
"""What many harmless settings are called as well."""
_PLAIN_WORD = lazy(r"(?:[a-z]+|[A-Z][a-z]+)(?:-[a-z]+)*$")
_REFERENCE = lazy(
    r"\[REDACTED|\$\{?\w|[<{]|[*?.…-]+$|os\.|env\b|environ|process\.|getenv|(?:None|null|true|false"
    r"|undefined)$|%\(|getpass\.|input\(|(?i:n/a)\b"
    r"|(?:self|this|args|opts|options|config|settings|params|props|request|req|user|form|body|data|credentials)(?:\.|->)"
    rf"(?:\w{{1,40}}\.){{0,3}}(?i:{_SECRET_NAME})\b"
)
"""What stands for a secret without being one."""

_CARD = lazy(r"(?<![\w.+-])(?:\d[ -]?){12,18}\d(?![\w-])")
_IBAN = lazy(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b")


def redact(text: str) -> str:
    """A text with its secrets replaced by `[REDACTED:kind]`.

    >>> redact("my password is hunter2, the port is 5432")
    'my password is [REDACTED:password], the port is 5432'
    """
    text = _without_private_keys(text)
    for secret in _SECRETS:
        text = replaced(secret.pattern, secret.by, text, longest=secret.longest, hints=secret.hints)
    return text


def _mark(kind: str) -> str:
    return f"[REDACTED:{kind}]"


def _without_private_keys(text: str) -> str:
    """Found by their first and last lines; one that lost its last line is cut to the end of the text."""
    kept: list[str] = []
    start = 0
    while begin := _PRIVATE_KEY_BEGIN.search(text, start):
        end = _PRIVATE_KEY_END.search(text, begin.end())
        kept += (text[start : begin.start()], _mark("private-key"))
        start = end.end() if end else len(text)
    return "".join((*kept, text[start:])) if kept else text


def _named(name: str) -> str:
    found = _KIND.search(name)
    return _KINDS.get(found[0].lower() if found else "", "password")


def _assigned(found: re.Match[str]) -> str:
    """`password=…`: whatever stands there, unless it only refers to a secret, or tells something about one."""
    name, lead, quote, quoted, bare = (found[part] for part in ("name", "lead", "quote", "quoted", "bare"))
    secret = quoted or bare
    if _REFERENCE.match(secret) or (_WEAK_NAME.match(name) and (len(secret) < 8 or _PLAIN_WORD.match(secret))):
        return found[0]
    if bare and found["colon"] and (not _MIXED.match(bare.rstrip(".!?)")) if lead else _tells(bare, found)):
        return found[0]
    return f"{name}{lead}{quote or ''}{_mark(_named(name))}"


def _tells(bare: str, found: re.Match[str]) -> bool:
    """Whether what stands after a colon begins a sentence, or says what a password has to be: "password: the form …"."""
    word = _WORD.match(bare)
    if word is None:
        return False
    goes_on = _GOES_ON.match(found.string, found.end()) is not None
    return word[1].lower() in _NEVER or (goes_on and word[1].lower() in _STARTS)


def _phrase(found: re.Match[str]) -> str:
    """Several words that are a secret together, unless they are a sentence about one."""
    words = re.split("[ -]", found["words"].lower())
    if len(words) < _MNEMONIC and any(word in _NEVER for word in words):
        return found[0]
    return f"{found['name']}{_mark('password')}"


def _spoken(found: re.Match[str]) -> str:
    """A password told in a sentence: only what cannot be a word of that sentence, unless it is quoted."""
    name, quote, quoted, value = (found[part] for part in ("name", "quote", "quoted", "bare"))
    secret = quoted or value.rstrip(".!?)")
    if _REFERENCE.match(secret) or (not quoted and _PLAIN_WORD.match(secret)):
        return found[0]
    return f"{name}{quote or ''}{_mark(_named(name))}{'' if quoted else value[len(secret) :]}"


def _is_card(number: str) -> bool:
    """Whether digits are a payment card's: the length, the issuer's first digit, and the Luhn sum."""
    digits = [int(digit) for digit in number if digit.isdigit()]
    if not 13 <= len(digits) <= 19 or digits[0] not in (2, 3, 4, 5, 6) or len(set(digits)) < 2:
        return False
    doubled = [2 * digit - 9 * (digit > 4) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _is_iban(account: str) -> bool:
    """Whether the check digits of a bank account are right."""
    bare = account.replace(" ", "")
    if not 15 <= len(bare) <= 34:
        return False
    return int("".join(str(int(sign, 36)) for sign in bare[4:] + bare[:4])) % 97 == 1


class _Secret(NamedTuple):
    pattern: re.Pattern[str]
    by: Callable[[re.Match[str]], str]
    """What to put in its place."""
    hints: tuple[str, ...] = ()
    """Of these, if there are any, it holds one."""
    longest: int = 1_000
    """Characters, with its name and all that shows where it ends."""


_NAMES = ("pass", "phrase", "pwd", "secret", "key", "token", "pin", "cvv", "cvc")
_SECRETS = (
    _Secret(_JWT, lambda found: f"{found['before']}{_mark('jwt')}", ("eyj",), 10_000),
    _Secret(_API_KEY, lambda _: _mark("api-key"), ("-", "_", "akia", "asia", "aiza", "ya29", "sg.")),
    _Secret(_CONNECTION, lambda found: f"{found[1]}{_mark('password')}{found[3]}", ("://",)),
    _Secret(_BEARER, lambda found: f"{found[1]}{found[2]}{_mark('token')}", ("bearer", "basic", "token"), 5_000),
    _Secret(_PHRASE, _phrase, ("phrase",)),
    _Secret(_ASSIGNED, _assigned, _NAMES),
    _Secret(_SPOKEN, _spoken, _NAMES),
    _Secret(_CARD, lambda found: _mark("card") if _is_card(found[0]) else found[0]),
    _Secret(_IBAN, lambda found: _mark("iban") if _is_iban(found[0]) else found[0]),
)
"""In the order in which they are looked for."""


_LONGEST_MEANING = 32_000
"""Characters of which a vector is made: more than most models read, and few enough for every function to read in a moment."""
Item = TypeVar("Item", Draft, MemoryRecord)


def meaning(item: Draft | MemoryRecord) -> str:
    """Return the text whose vector stands for a memory: its beginning, of JSON without its punctuation."""
    if item.mime_type != JSON or len(item.content) > _LONGEST_MEANING:
        return item.content[:_LONGEST_MEANING]
    return "; ".join(_leaves(decode_json(item.content), "")) or item.content


def redacted(item: Item) -> Item:
    """The memory without secrets in its content, tags and metadata; in JSON, only texts are looked at."""
    if item.mime_type == JSON:
        value = decode_json(item.content)
        clean = _redacted(value)
        content = item.content if clean == value else encode_json(clean, "JSON content")
    else:
        content = redact(item.content)
    tags = tuple(redact(tag) for tag in item.tags)
    return replace(item, content=content, tags=tags, metadata=_redacted(dict(item.metadata)))


def _leaves(value: object, path: str) -> Iterable[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{path} {key}".strip())
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, path)
    else:
        yield f"{path}: {value}"


def _redacted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _redacted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_redacted(item) for item in value]
    return redact(value) if isinstance(value, str) else value


E = TypeVar("E", bound=BaseException)

_SHORTEST = 6
"""What is shorter protects nothing, and may be part of any word."""
_MARK = "[REDACTED]"
_USER_IN_ADDRESS = lazy(
    r"(://)[^\s/@'\"]{1,300}@|(?<![\w:/@.-])[^\s:/@'\"]{1,100}:[^\s:/@'\"]{1,200}@(?=[\w.-]{1,100}(?::\d|/|\b))"
)
_VARIABLE = lazy(r"[A-Za-z_][A-Za-z0-9_]{0,200}")
_used: set[str] = set()


def keep_out(secret: str) -> None:
    """Keep a secret that this process uses out of all errors and logs."""
    if len(secret) >= _SHORTEST:
        _used.add(secret)


def without_secrets(text: str) -> str:
    """A text about trouble, without what looks like a secret, or is known to be one.

    >>> without_secrets("no answer from https://ann:hunter2@example.org/api")
    'no answer from https://[REDACTED]@example.org/api'
    """
    for secret in sorted(_used, key=len, reverse=True):
        text = text.replace(secret, _MARK)
    return redact(_USER_IN_ADDRESS.sub(lambda found: f"{found[1] or ''}{_MARK}@", text))


def caused_by(error: E, cause: BaseException) -> E:
    """The error, with its cause if that can be shown. To be raised outside of `except`, which would attach the cause anyway."""
    error.__cause__ = None if any(_tells_a_secret(link) for link in _chain(cause)) else cause
    return error


def _chain(error: BaseException) -> list[BaseException]:
    """The error, and all that it came from."""
    found = [error]
    for link in found:  # which grows meanwhile
        before = (link.__cause__, link.__context__)
        found += [other for other in before if other is not None and not any(other is known for known in found)]
    return found


def _tells_a_secret(error: BaseException) -> bool:
    told = f"{error!r}\n{error}"
    return without_secrets(told) != told


def check_variable(name: str, what: str) -> str:
    """The name of an environment variable, or a complaint that does not repeat it: it may be the secret itself.

    Raises:
        ValueError: It cannot be a name.
    """
    if not isinstance(name, str) or _VARIABLE.fullmatch(name) is None or redact(name) != name:
        raise ValueError(
            f"{what} must be the name of an environment variable, of letters, digits and underscores. What was given is not "
            "shown, since it may be the secret itself: put that into a variable, and give the variable's name."
        )
    return name


def check_host(host: str) -> str:
    """A host without a user name or password, or a complaint that does not repeat it.

    Raises:
        ValueError: It holds more than a host.
    """
    if re.search(r"[@?#\s]", host):
        raise ValueError(
            "The host of a server must be a name or an address alone. What was given is not shown, since it may hold a "
            "password or a token: put that into an environment variable, and name the variable with token_env (--token-env) "
            "or headers_env."
        )
    return host


def _look_through(record: logging.LogRecord) -> bool:
    message = record.getMessage()
    if (shown := without_secrets(message)) != message:
        record.msg, record.args = shown, ()
    if record.exc_info:
        trace = logging.Formatter().formatException(record.exc_info)
        if (shown := without_secrets(trace)) != trace:
            record.exc_info, record.exc_text = None, shown
    return True


logging.getLogger("autogen_persistent_memory").addFilter(_look_through)


_BETWEEN = r"[^\w<＜﹤]{0,8}"  # also invisible characters
_WORDS = lazy(r"[^\s\x00-\x1f\x7f-\x9f]+")
_TAG = lazy(rf"[<＜﹤](?={_BETWEEN.join(('', *'memory'))})", re.IGNORECASE)


def neutral(text: str) -> str:
    """Return the text on one line, without control characters, unable to open or close a block."""
    line = " ".join(found[0] for found in _WORDS.finditer(text))
    return replaced(_TAG, lambda _: "‹", line, hints="<＜﹤")

"""Keep secrets out of memories, errors and logs, and keep stored text inside its block. Pure functions, but for the log filter.

Every pattern is anchored at a literal and bounded in length, so that searching a megabyte takes a moment, whatever it holds.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from ..core.checks import decode_json, encode_json
from ..core.lazy_regex import lazy
from ..core.records import JSON, Draft, MemoryRecord
from .pieces import replaced

Item = TypeVar("Item", Draft, MemoryRecord)
E = TypeVar("E", bound=BaseException)

# What secrets are called: in configurations, and in what people write.

_CREDENTIAL = (
    r"pass(?:word|wd|phrase|code)|pwd|secret(?:[_ -]?(?:key|access[_ -]?key))?|api[_ -]?key|access[_ -]?key(?:[_ -]?id)?"
    r"|(?:(?:access|auth|refresh|bot)[_ -]?)?token|client[_ -]?secret|private[_ -]?key"
)
_SECRET_NAME = rf"(?:{_CREDENTIAL}|(?:seed|recovery)[_ -]?phrase|pin(?: code)?|cvv|cvc)"
_KINDS = {"key": "api-key", "token": "token", "secret": "secret", "pin": "pin", "cvv": "pin", "cvc": "pin"}
_KINDS |= dict.fromkeys(("pass", "pwd", "phrase"), "password")
"""Texts of which every name of a secret holds one, and the kind that each means."""
_KIND = lazy("|".join(_KINDS), re.IGNORECASE)
_SETTING = rf"{_CREDENTIAL}|keys?|credentials?|authorization|bearer"
_SECRET_SETTING = lazy(rf"(?:^|[^a-z])(?:{_SETTING})$", re.IGNORECASE)
_SUSPICIOUS_SETTING = lazy(rf"(?:^|[^a-z])(?:{_SETTING}|auth|headers?)(?:$|[^a-z])", re.IGNORECASE)
_VARIABLE = lazy(r"[A-Za-z_][A-Za-z0-9_]{0,200}")

# What secrets look like.

_PRIVATE_KEY_BEGIN = lazy(r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_PRIVATE_KEY_END = lazy(r"-----END (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----")

_JWT = lazy(
    r"(?<![\w-])(?=[\w-]{11,3000}\.[\w-]{8})"  # once for each word, however often the word could start a token
    r"(?P<before>[\w-]{0,1000}?)\beyJ[\w-]{8,2000}\.[\w-]{8,4000}(?:\.[\w-]{0,2000})?"
)
_API_KEY = lazy(
    r"""
        \bsk-(?:proj-|ant-|svcacct-|or-|live-)?(?=[\w-]{0,60}\d)[\w-]{16,400}   # OpenAI, Anthropic and the like
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

# What follows the name of a secret: the secret itself, or a word about it.

_VALUE = r"(?:(?P<quote>[\"'`])(?P<quoted>[^\"'`\n]{3,200})(?=(?P=quote))|(?P<bare>[^\s\"'`,;]{3,400}))"
_NOT_SECRETS = (  # noqa: SIM905 (words read best as words)
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
"""Words that are not a secret after a colon: function words, what is said about passwords, and types."""
_SENTENCE_STARTS = (  # noqa: SIM905
    "click enter type choose pick use see check change create update remember keep store please try make ask contact note "
    "ensure verify confirm avoid set get send let press user users people field form input page policy rules minimum maximum"
).split()
"""Words that are not a secret after a colon if a sentence continues behind them."""
_ASSIGNED = lazy(
    rf"(?<![A-Za-z])(?P<name>{_SECRET_NAME}[\"']?\s{{0,3}}(?:=>|:=|==?|(?P<colon>:))\s{{0,3}})"
    rf"(?P<lead>(?(colon)(?:(?:{'|'.join((*_NOT_SECRETS, *_SENTENCE_STARTS))})\b[:,]?\s{{1,3}}){{0,4}})){_VALUE}",
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
"""From this number of words on, none shorter than three letters, it is a mnemonic and not a sentence."""
_WORD = lazy(r"[(\[]*([A-Za-z]+)(?:[(\[<][\w.|]*)?[)\]>?!.:*|]*$")
"""A word as it stands in a sentence or a signature, with brackets and punctuation."""
_CONTINUES = lazy(r"\s*['’](?:t|s|re|ve|ll|d)\b|[:,]?[^\S\n]{1,3}\w")
_MIXED = lazy(
    r"(?!\w+://)(?![\w.+-]+@[\w-]+\.)(?=[^\s/]{5,}$)(?=.*[A-Za-z])(?=.*(?:\d|[!@#$%^&*+=~].)).*[\w!@#$%^&*+=~]"
)
"""Looks like neither a word nor an address, a path or a number."""
_WEAK_NAME = lazy(r"(?:token|pin|secret)\b", re.IGNORECASE)
"""Names that many harmless settings have as well."""
_PLAIN_WORD = lazy(r"(?:[a-z]+|[A-Z][a-z]+)(?:-[a-z]+)*$")
_REFERENCE = lazy(
    r"\[REDACTED|\$\{?\w|[<{]|[*?.…-]+$|os\.|env\b|environ|process\.|getenv|(?:None|null|true|false"
    r"|undefined)$|%\(|getpass\.|input\(|(?i:n/a)\b"
    r"|(?:self|this|args|opts|options|config|settings|params|props|request|req|user|form|body|data|credentials)(?:\.|->)"
    rf"(?:\w{{1,40}}\.){{0,3}}(?i:{_SECRET_NAME})\b"
)
"""Refers to a secret without being one."""

_CARD = lazy(r"(?<![\w.+-])(?:\d[ -]?){12,18}\d(?![\w-])")
_IBAN = lazy(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b")


def redact(text: str) -> str:
    """Return the text with its secrets replaced by `[REDACTED:kind]`.

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
    """Find keys by their first and last lines; one without a last line extends to the end of the text."""
    kept: list[str] = []
    start = 0
    while begin := _PRIVATE_KEY_BEGIN.search(text, start):
        end = _PRIVATE_KEY_END.search(text, begin.end())
        kept += (text[start : begin.start()], _mark("private-key"))
        start = end.end() if end else len(text)
    return "".join((*kept, text[start:])) if kept else text


def _kind_of(name: str) -> str:
    return _KINDS.get(_KIND.findall(name)[0].lower(), "password")


def _assigned(found: re.Match[str]) -> str:
    """Redact what follows `password=` or `password:`, unless it refers to a secret or says something about one."""
    name, lead, quote, quoted, bare = (found[part] for part in ("name", "lead", "quote", "quoted", "bare"))
    secret = quoted or bare
    if _REFERENCE.match(secret) or (_WEAK_NAME.match(name) and (len(secret) < 8 or _PLAIN_WORD.match(secret))):
        return found[0]
    if bare and found["colon"] and (not _MIXED.match(bare.rstrip(".!?)")) if lead else _is_said_about_it(bare, found)):
        return found[0]
    return f"{name}{lead}{quote or ''}{_mark(_kind_of(name))}"


def _is_said_about_it(bare: str, found: re.Match[str]) -> bool:
    """Return whether the text after a colon starts a sentence or says what a password must be: "password: the form …"."""
    word = _WORD.match(bare)
    if word is None:
        return False
    first = word[1].lower()
    continues = _CONTINUES.match(found.string, found.end()) is not None
    return first in _NOT_SECRETS or (continues and first in _SENTENCE_STARTS)


def _phrase(found: re.Match[str]) -> str:
    """Redact several words that are a secret together, unless they are a sentence about one."""
    words = re.split("[ -]", found["words"].lower())
    if len(words) < _MNEMONIC and any(word in _NOT_SECRETS for word in words):
        return found[0]
    return f"{found['name']}{_mark('password')}"


def _spoken(found: re.Match[str]) -> str:
    """Redact a password told in a sentence, if it is quoted or cannot be a word of that sentence."""
    name, quote, quoted, value = (found[part] for part in ("name", "quote", "quoted", "bare"))
    secret = quoted or value.rstrip(".!?)")
    if _REFERENCE.match(secret) or (not quoted and _PLAIN_WORD.match(secret)):
        return found[0]
    return f"{name}{quote or ''}{_mark(_kind_of(name))}{'' if quoted else value[len(secret) :]}"


def _is_card(number: str) -> bool:
    """Return whether digits are a payment card's, by their number, the issuer's first digit and the Luhn sum."""
    digits = [int(digit) for digit in number if digit.isdigit()]
    if not 13 <= len(digits) <= 19 or digits[0] not in (2, 3, 4, 5, 6) or len(set(digits)) < 2:
        return False
    doubled = [2 * digit - 9 * (digit > 4) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _is_iban(account: str) -> bool:
    """Return whether the check digits of a bank account are right."""
    bare = account.replace(" ", "")
    if not 15 <= len(bare) <= 34:
        return False
    return int("".join(str(int(sign, 36)) for sign in bare[4:] + bare[:4])) % 97 == 1


class _Secret(NamedTuple):
    pattern: re.Pattern[str]
    by: Callable[[re.Match[str]], str]
    """Returns the replacement."""
    hints: tuple[str, ...] = ()
    """Texts of which every match holds one; empty if there are none."""
    longest: int = 1_000
    """Characters of the longest match, with its name and all that shows where it ends."""


_SECRETS = (
    _Secret(_JWT, lambda found: f"{found['before']}{_mark('jwt')}", ("eyj",), 10_000),
    _Secret(_API_KEY, lambda _: _mark("api-key"), ("-", "_", "akia", "asia", "aiza", "ya29", "sg.")),
    _Secret(_CONNECTION, lambda found: f"{found[1]}{_mark('password')}{found[3]}", ("://",)),
    _Secret(_BEARER, lambda found: f"{found[1]}{found[2]}{_mark('token')}", ("bearer", "basic", "token"), 5_000),
    _Secret(_PHRASE, _phrase, ("phrase",)),
    _Secret(_ASSIGNED, _assigned, tuple(_KINDS)),
    _Secret(_SPOKEN, _spoken, tuple(_KINDS)),
    _Secret(_CARD, lambda found: _mark("card") if _is_card(found[0]) else found[0]),
    _Secret(_IBAN, lambda found: _mark("iban") if _is_iban(found[0]) else found[0]),
)
"""In the order in which they are searched for."""


def redacted(item: Item) -> Item:
    """Return the memory without secrets in its content, tags and metadata; in JSON content only texts are searched."""
    if item.mime_type == JSON:
        value = decode_json(item.content)
        clean = _redacted(value)
        content = item.content if clean == value else encode_json(clean, "JSON content")
    else:
        content = redact(item.content)
    return replace(item, content=content, tags=tuple(map(redact, item.tags)), metadata=_redacted(dict(item.metadata)))


def _redacted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _redacted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_redacted(item) for item in value]
    return redact(value) if isinstance(value, str) else value


def names_secret(setting: str) -> bool:
    """Return whether the value of a setting of this name is a secret.

    >>> names_secret("X-Api-Key"), names_secret("max_tokens"), names_secret("api_key_env")
    (True, False, False)
    """
    return _SECRET_SETTING.search(setting) is not None


def may_hold_secret(setting: str) -> bool:
    """Return whether the value of a setting of this name may hold a secret, as headers do.

    >>> may_hold_secret("default_headers"), may_hold_secret("api_key_env"), may_hold_secret("max_tokens")
    (True, True, False)
    """
    return _SUSPICIOUS_SETTING.search(setting) is not None


def check_variable(name: str, what: str) -> str:
    """Return the name of an environment variable, or raise a ValueError that does not repeat it."""
    if not isinstance(name, str) or _VARIABLE.fullmatch(name) is None or redact(name) != name:
        raise ValueError(
            f"{what} must be the name of an environment variable: letters, digits and underscores. The value given is not "
            "shown, because it may be the secret itself: put the secret into a variable and give the variable's name."
        )
    return name


def check_host(host: str) -> str:
    """Return a host without a user name or password, or raise a ValueError that does not repeat it."""
    if re.search(r"[@?#\s]", host):
        raise ValueError(
            "The host of a server must be a name or an address alone. The value given is not shown, because it may hold a "
            "password or a token: put that into an environment variable and name the variable with token_env (--token-env) "
            "or headers_env."
        )
    return host


_SHORTEST = 6
"""Characters. A shorter secret protects nothing, and may be part of any word."""
_MARK = "[REDACTED]"
_USER_IN_ADDRESS = lazy(
    r"(://)[^\s/@'\"]{1,300}@|(?<![\w:/@.-])[^\s:/@'\"]{1,100}:[^\s:/@'\"]{1,200}@(?=[\w.-]{1,100}(?::\d|/|\b))"
)
_in_use: set[str] = set()


def keep_out(secret: str) -> None:
    """Keep a secret that this process uses out of all errors and logs."""
    if len(secret) >= _SHORTEST:
        _in_use.add(secret)


def without_secrets(text: str) -> str:
    """Return an error message without secrets that this process uses, and without what looks like one.

    >>> without_secrets("no answer from https://ann:hunter2@example.org/api")
    'no answer from https://[REDACTED]@example.org/api'
    """
    for secret in sorted(_in_use, key=len, reverse=True):
        text = text.replace(secret, _MARK)
    return redact(_USER_IN_ADDRESS.sub(lambda found: f"{found[1] or ''}{_MARK}@", text))


def caused_by(error: E, cause: BaseException) -> E:
    """Return the error with its cause attached, unless the cause shows a secret.

    Raise the result outside of `except`, which would attach the cause in any case.
    """
    error.__cause__ = None if any(_shows_secret(link) for link in _chain(cause)) else cause
    return error


def _chain(error: BaseException) -> list[BaseException]:
    """Return the error and all errors that led to it."""
    found = [error]
    for link in found:  # which grows meanwhile
        before = (link.__cause__, link.__context__)
        found += [other for other in before if other is not None and not any(other is known for known in found)]
    return found


def _shows_secret(error: BaseException) -> bool:
    shown = f"{error!r}\n{error}"
    return without_secrets(shown) != shown


def _redact_log(record: logging.LogRecord) -> bool:
    message = record.getMessage()
    if (shown := without_secrets(message)) != message:
        record.msg, record.args = shown, ()
    if record.exc_info:
        trace = logging.Formatter().formatException(record.exc_info)
        if (shown := without_secrets(trace)) != trace:
            record.exc_info, record.exc_text = None, shown
    return True


logging.getLogger("autogen_persistent_memory").addFilter(_redact_log)


_BETWEEN = r"[^\w<＜﹤]{0,8}"  # also invisible characters
_WORDS = lazy(r"[^\s\x00-\x1f\x7f-\x9f]+")
_TAG = lazy(rf"[<＜﹤](?={_BETWEEN.join(('', *'memory'))})", re.IGNORECASE)


def neutral(text: str) -> str:
    """Return the text on one line, without control characters, and unable to open or close the block of memories."""
    line = " ".join(found[0] for found in _WORDS.finditer(text))
    return replaced(_TAG, lambda _: "‹", line, hints="<＜﹤")

"""Extraction by a language model: what it is asked is in `extraction.prompt`, what is believed of its answer in `extraction.grounding`."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

from autogen_core.models import ChatCompletionClient, LLMMessage, SystemMessage, UserMessage
from pydantic import BaseModel

from ..core.checks import mended
from ..core.component_configs import ExtractorConfig, ModelExtractorConfig, NoExtractorConfig, RuleExtractorConfig
from ..core.errors import PersistentMemoryError
from ..core.records import JSON, MemoryRecord
from ..runtime.threads import in_thread
from ..text.redaction import caused_by, without_secrets
from ..text.words import statement
from .english.about_life import kind_of_plan
from .extractor import Extractor, Fact, Message, RuleExtractor
from .grounding import Evidence, is_worth_keeping, restates, tidied
from .model_clients import check_client, dump_client, load_client
from .model_json import lines_like, objects_with, strings
from .prompt import INSTRUCTIONS, KINDS, batches, question

CALL_SECONDS = 60.0
"""How long one answer may take."""
RETRIES = 2
"""How often a call that failed for a reason that may pass is made again."""
BACKOFF_SECONDS = 1.0
"""How long to wait before the first of these; each further wait is three times as long."""
MOST_KNOWN = 20
"""How many known memories the model is shown."""
MOST_FACTS = 8
"""How many facts of one answer are believed."""

_PASSING = frozenset((408, 409, 425, 429))
_UNSUPPORTED = frozenset((400, 415, 422))
_logger = logging.getLogger("autogen_persistent_memory")


class _FoundFact(BaseModel):
    content: str
    kind: Literal["fact", "preference", "decision", "lesson", "context"]
    replaces: str | None


class _FoundFacts(BaseModel):
    """The shape of an answer, for models that can be held to one."""

    facts: list[_FoundFact]


class _ModelSetupError(PersistentMemoryError):
    """A model that cannot be asked as it is set up."""

    needs_developer = True


class ModelExtractor(Extractor):
    """Asks a language model what is worth keeping, in the background, for some messages at a time.

    What the model answers is believed only as far as it stands in what was said: a fact whose numbers, names or words
    are not those of the messages is dropped, and so is what is known already.

    Args:
        client: Any AutoGen model client. It is not closed; that stays with whoever made it.
        every: For how many messages the model is asked at a time. The rest is asked for when the memory is flushed.
        rules: Whether rules also read every message at once, so that easy facts are known in the same turn.

    Example:
        >>> from autogen_ext.models.replay import ReplayChatCompletionClient
        >>> ModelExtractor(ReplayChatCompletionClient(["[]"]), every=20).every
        20
    """

    def __init__(self, client: ChatCompletionClient, *, every: int = 10, rules: bool = True) -> None:
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ValueError(f"every must be a number of messages, 1 or more, not {every!r}.")
        self.every: int | None = every
        self._every = every
        self._client = check_client(client, "client")
        self._rules = RuleExtractor() if rules else None

    @property
    def config(self) -> ModelExtractorConfig:
        return ModelExtractorConfig(client=dump_client(self._client), every=self._every, rules=self._rules is not None)

    async def extract_now(self, message: Message) -> list[Fact]:
        """The facts in a message that rules find."""
        return await self._rules.extract_now(message) if self._rules else []

    async def extract_later(self, messages: Sequence[Message], known: Sequence[MemoryRecord]) -> list[Fact]:
        """The facts in some messages that the model finds.

        Raises:
            PersistentMemoryError: The model could not be asked, also not after some retries.
        """
        shown = [record for record in known if record.mime_type != JSON][:MOST_KNOWN]
        contents = [record.content for record in shown]
        facts: list[Fact] = []
        for part in batches(messages):
            evidence = await in_thread(partial(Evidence, part, contents))
            if not evidence.is_empty:
                answer = await self._answer(question(part, contents))
                facts += await in_thread(partial(_believed, answer, evidence, shown, tuple(facts)))
        return facts

    async def _answer(self, asked: str) -> str:
        """What the model says, in the strictest form it can be held to."""
        prompt: list[LLMMessage] = [SystemMessage(content=INSTRUCTIONS), UserMessage(content=asked, source="user")]
        forms = self._forms()
        failures = 0
        while True:
            try:
                result = await asyncio.wait_for(self._client.create(prompt, json_output=forms[0]), CALL_SECONDS)
                return result.content if isinstance(result.content, str) else ""
            except Exception as error:
                if (cut_off := _cut_off(error)) is not None:
                    return cut_off
                if _may_pass(error) and failures < RETRIES:
                    await asyncio.sleep(BACKOFF_SECONDS * 3**failures)
                    failures += 1
                elif _is_unsupported(error) and len(forms) > 1:
                    forms = forms[1:]
                else:
                    failure = caused_by(_failure(error), error)
                    break
        raise failure

    def _forms(self) -> list[type[BaseModel] | bool | None]:
        able = self._client.model_info
        forms: list[type[BaseModel] | bool | None] = [None]
        if able.get("json_output"):
            forms.insert(0, True)
        if able.get("structured_output"):
            forms.insert(0, _FoundFacts)
        return forms


def extractor_from_config(config: ExtractorConfig) -> Extractor | None:
    """The extractor that a configuration describes; None for none.

    Raises:
        ValueError: The model client was dumped without its key, as AutoGen does, and cannot work without.
    """
    if isinstance(config, NoExtractorConfig):
        return None
    if isinstance(config, RuleExtractorConfig):
        return RuleExtractor()
    client = load_client(config.client, "the extractor")
    return ModelExtractor(client, every=config.every, rules=config.rules)


def _believed(answer: str, evidence: Evidence, known: Sequence[MemoryRecord], before: Sequence[Fact]) -> list[Fact]:
    """The facts of an answer that stand in what was said and are new."""
    found = objects_with("content", answer) or [
        {"content": sentence} for sentence in strings(answer) or lines_like("The user", answer)
    ]
    if not found and not re.search(r"\[\s*\]|\{\s*\}", answer):
        _logger.debug("The model that extracts memories answered without any: %.200r", answer)
    facts: list[Fact] = []
    for item in found:
        content, kind = item["content"], item.get("kind")
        content = tidied(mended(content)) if isinstance(content, str) else ""
        kind = kind if kind in KINDS else "fact"
        told = [record.content for record in known] + [fact.content for fact in (*before, *facts)]
        if (
            is_worth_keeping(content)
            and evidence.supports(content, kind)
            and not any(statement(content) == statement(other) or restates(content, other) for other in told)
        ):
            facts.append(
                Fact(content=content, kind=_lasting(kind, content), replaces=_replaced(item, content, evidence, known))
            )
    return facts[:MOST_FACTS]


def _lasting(kind: str, content: str) -> str:
    """The kind of a fact; one that tells of next week is not kept for ever."""
    plan = kind_of_plan(content) if kind in ("fact", "context") else None
    return plan if plan in ("temporary", "context") else kind


def _replaced(item: Mapping[str, Any], content: str, evidence: Evidence, known: Sequence[MemoryRecord]) -> str | None:
    """The id of the known memory that the model says a fact changes, if there is such a one."""
    number = re.fullmatch(r"\s*\[?K?(\d{1,3})[\].]?\s*", str(item.get("replaces")), re.IGNORECASE)
    if number is None or not 1 <= int(number[1]) <= len(known):
        return None
    record = known[int(number[1]) - 1]
    return record.id if evidence.allows_replacing(content, record.content) else None


def _cut_off(error: Exception) -> str | None:
    """The beginning of an answer that was too long: OpenAI's client raises, and the error has it."""
    choices = getattr(getattr(error, "completion", None), "choices", None)
    content = getattr(getattr(choices[0], "message", None), "content", None) if choices else None
    return content if isinstance(content, str) else None


def _may_pass(error: Exception) -> bool:
    """Whether the same call may go well later: by its HTTP status, or because nothing says that the call is wrong."""
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        return status in _PASSING or status >= 500
    return not isinstance(error, (ValueError, TypeError, AttributeError, LookupError, ImportError, NotImplementedError))


def _is_unsupported(error: Exception) -> bool:
    """Whether the form of the answer may be what is wrong with a call."""
    status = getattr(error, "status_code", None)
    return status in _UNSUPPORTED if isinstance(status, int) else not _may_pass(error)


def _failure(error: Exception) -> PersistentMemoryError:
    said = f"{type(error).__name__}: {without_secrets(str(error))[:300]}"
    if _may_pass(error):
        return PersistentMemoryError(
            f"The model that extracts memories did not answer ({said}). The messages are kept; ask again later."
        )
    return _ModelSetupError(
        f"The model that extracts memories cannot be asked ({said}). The messages are kept; see to the client that "
        "ModelExtractor was given: its key, its model's name and model_info."
    )

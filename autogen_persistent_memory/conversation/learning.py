"""Facts out of messages: by the extractor as each message arrives, and by a model in the background where it wants that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..core.records import FACTS, MESSAGES, QUOTE, SPANS, MemoryRecord, stable_id
from ..extraction.background_extraction import BackgroundExtraction, mark_unread
from ..extraction.extractor import Extractor, Message, RuleExtractor, learned, within_limits
from ..retrieval.engine import Engine
from ..runtime.threads import in_thread
from ..storage.outbox import QueuedMessage
from ..text.sentences import locate

_MOST_FACTS = 500
"""How many facts are stored from one message."""
_LONGEST_QUOTE = 500


class Learner:
    """Stores the facts in messages of one session, and in queued messages of other sessions that it is given.

    Args:
        engine: The engine of the namespace.
        session: The captured session, if there is one.
        extractor: Finds the facts of that session. Queued messages of other sessions get the rules if there is none.
    """

    def __init__(self, engine: Engine, session: str | None = None, extractor: Extractor | None = None) -> None:
        self._engine = engine
        self._session = session
        self.extractor = extractor
        self.background: BackgroundExtraction | None = None
        """Lets a model read the session later, if the extractor wants that."""
        if session is not None and extractor is not None and extractor.every is not None:
            self.background = BackgroundExtraction(engine, session, extractor, extractor.every)

    async def learn(self, heard: QueuedMessage, *, late: bool = False) -> tuple[QueuedMessage, list[MemoryRecord]]:
        """Store the facts in a message; return the message with links to them, and the facts.

        Args:
            heard: The message.
            late: Whether it was queued, so that its facts are dated by the message and not by now.
        """
        if not heard.learn:
            return heard, []
        extractor = self.extractor or RuleExtractor()
        message = Message(id=heard.id, source=heard.source, text=heard.text, by_user=heard.by_user, at=heard.at)
        facts = within_limits(await extractor.extract_now(message))[:_MOST_FACTS]
        if not facts:
            return heard, []
        spans = await in_thread(lambda: locate([fact.quote or fact.content for fact in facts], heard.text))
        drafts = [
            learned(
                fact,
                id=stable_id(heard.id, fact.content),
                source=heard.source,
                session=heard.session,
                metadata={MESSAGES: [heard.id], QUOTE: heard.text[start:end][:_LONGEST_QUOTE]},
                at=heard.at if late else None,
            )
            for fact, (start, end) in zip(facts, spans, strict=True)
        ]
        records = await self._engine.remember("profile", drafts)
        told = {record.id: span for record, span in zip(records, spans, strict=True)}
        return heard._replace(learn=False, facts=tuple(told), spans=tuple(told.values())), records

    async def learn_from_user(self, message: MemoryRecord) -> None:
        """Store the facts in a message that was stored as an agent's, and correct its origin: the user said it."""
        heard = QueuedMessage(
            id=message.id,
            session=message.session or "",
            source=message.source or "",
            text=message.content,
            by_user=True,
            at=message.created_at,
            learn=self.extractor is not None,
        )
        heard, _ = await self.learn(heard, late=True)

        def corrected(record: MemoryRecord) -> MemoryRecord:
            return replace(record, origin="user", metadata={**record.metadata, **links(heard)})

        amended = await self._engine.amend("session", message.id, corrected)
        if self.background is not None and amended is not None:
            self.background.correct(amended)

    async def expect(self, messages: Sequence[QueuedMessage]) -> None:
        """Mark the sessions that a model has to read, before these messages are stored."""
        for session in {heard.session for heard in messages if heard.study}:
            if self.background is not None and session == self._session:
                await self.background.begin()
            else:
                await mark_unread(self._engine, session)

    def add(self, stored: Sequence[MemoryRecord]) -> None:
        """Let a model read stored messages of the session."""
        if self.background is not None:
            self.background.add([record for record in stored if record.session == self._session])


def links(heard: QueuedMessage) -> dict[str, object]:
    """Return the metadata that links a message to the facts it tells."""
    return {FACTS: list(heard.facts), SPANS: [list(span) for span in heard.spans]} if heard.facts else {}

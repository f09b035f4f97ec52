"""Tokens and passwords are in no error, cause of an error, log or dump."""

from __future__ import annotations

import http.server
import json
import logging
import threading
import traceback
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_core.memory import Memory
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_ext.models.replay import ReplayChatCompletionClient
from toys import words
from typer.testing import CliRunner

from autogen_persistent_memory import (
    CallableEmbedding,
    ChromaEmbedding,
    CloudStore,
    ModelExtractor,
    PersistentMemory,
    PersistentMemoryError,
    ProfileMemory,
    RecallPolicy,
    ServerStore,
    StoreUnavailableError,
    TemporaryStore,
)
from autogen_persistent_memory.cli.app import app

TOKEN = "plain words as a token"  # which matches no pattern
PASSWORD = "hunter2horse"


class Talkative(http.server.BaseHTTPRequestHandler):
    """A gateway that answers every request with an error that contains the request's headers."""

    status: ClassVar[int] = 403

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        said = json.dumps({"error": "NotAllowed", "message": f"You sent {dict(self.headers)}"}).encode()
        self.send_response(self.status, f"No {self.headers['Authorization']}")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_GET = do_POST = do_PUT = do_DELETE = _answer

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def gateway() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Talkative) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def told(error: BaseException | None) -> str:
    """Return everything an error could show: its text, its attributes, and its causes."""
    text = ""
    while error is not None:
        text += "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error))
        error = error.__cause__ or error.__context__
    return text


@pytest.mark.parametrize("status", [401, 403, 422, 500, 503])
async def test_a_token_repeated_by_a_server_is_in_no_error_or_log(
    gateway: int, status: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Talkative, "status", status)
    monkeypatch.setenv("MY_TOKEN", TOKEN)
    monkeypatch.setenv("MY_HEADER", PASSWORD)
    caplog.set_level(logging.DEBUG, "autogen_persistent_memory")
    store = ServerStore(
        "127.0.0.1", gateway, timeout=1, token_env="MY_TOKEN", headers_env={"X-Team": "MY_HEADER"}, outbox=""
    )
    memory = PersistentMemory("ann", store=store, embedding=words(), policy=RecallPolicy(deadline=1))
    with pytest.raises(StoreUnavailableError, match=f"127.0.0.1:{gateway} cannot be used") as failure:
        await memory.remember("Likes tea")
    agent = AssistantAgent("assistant", ReplayChatCompletionClient(["Hello."]), memory=[memory])
    await agent.run(task="Hello")
    await memory.close()
    everything = told(failure.value) + caplog.text + "".join(str(record.__dict__) for record in caplog.records)
    assert "goes on without memory of" in caplog.text
    assert TOKEN not in everything
    assert PASSWORD not in everything


@pytest.mark.parametrize("value", [f"{PASSWORD}\n", f"{PASSWORD}ä", f"{PASSWORD}\0"[:-1] + "\x7f"])
async def test_an_invalid_token_is_not_in_the_error(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", value)
    memory = PersistentMemory("ann", store=ServerStore(token_env="MY_TOKEN", outbox=""), embedding=words())
    with pytest.raises(
        StoreUnavailableError, match="MY_TOKEN, which holds the store's token, has characters"
    ) as failure:
        await memory.remember("Likes tea")
    assert PASSWORD not in told(failure.value)
    await memory.close()


@pytest.mark.parametrize(
    "host", [f"ann:{PASSWORD}@example.org", f"{PASSWORD}@example.org", f"https://x?token={PASSWORD}", f"x#{PASSWORD}"]
)
def test_a_host_with_a_password_is_refused_without_repeating_it(host: str) -> None:
    with pytest.raises(ValueError, match="host of a server must be a name") as refusal:
        ServerStore(host)
    dumped = ProfileMemory("ann", store=ServerStore("example.org")).dump_component()
    dumped.config["store"]["host"] = host
    with pytest.raises(ValueError, match="host of a server must be a name") as loading:
        Memory.load_component(dumped)
    for server in (f"{host}:8000", host):
        result = CliRunner().invoke(app, ["list", "-n", "ann", "--server", server])
        assert result.exit_code == 2
        assert PASSWORD not in result.output
        assert "token-env" in result.output
    assert PASSWORD not in told(refusal.value) + told(loading.value)


@pytest.mark.parametrize(
    "variable", ["sk-proj-abc123def456ghi789jkl", "ghp_abcdefghijklmnopqrst12345", "two words", ""]
)
def test_a_secret_instead_of_a_variables_name_is_refused_without_repeating_it(variable: str) -> None:
    for make in (
        lambda: ServerStore(token_env=variable),
        lambda: ServerStore(headers_env={"X-Key": variable}),
        lambda: CloudStore(api_key_env=variable),
        lambda: ChromaEmbedding("openai", api_key_env_var=variable),
    ):
        with pytest.raises(ValueError, match="must be the name of an environment variable") as refusal:
            make()
        assert not variable or variable not in told(refusal.value)


@pytest.mark.parametrize(
    "options",
    [
        {"url": f"https://{PASSWORD}@example.org"},
        {"url": f"https://ann:{PASSWORD}@example.org"},
        {"api_base": "https://example.org/v1?api_key=abcdef1234567890"},
        {"kwargs": {"servers": [f"https://ann:{PASSWORD}@example.org"]}},
    ],
)
def test_an_address_with_a_secret_is_not_part_of_an_embedding_id(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="may hold a secret") as refusal:
        ChromaEmbedding("ollama", **options)
    assert PASSWORD not in told(refusal.value)


async def test_secrets_in_an_embeddings_error_are_removed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(texts: list[str]) -> list[list[float]]:
        try:
            raise ConnectionError(f"no answer from https://ann:{PASSWORD}@example.org")
        except ConnectionError as error:
            raise RuntimeError("the key sk-proj-abc123def456ghi789jkl is wrong") from error

    memory = PersistentMemory("ann", store=TemporaryStore(), embedding=CallableEmbedding(fail, id="failing"))
    with pytest.raises(PersistentMemoryError, match=r"'failing' failed: RuntimeError.*REDACTED") as failure:
        await memory.remember("Likes tea")
    agent = AssistantAgent("assistant", ReplayChatCompletionClient(["Hello."]), memory=[memory])
    await agent.run(task="Hello")
    assert "goes on without memory of" in caplog.text
    assert PASSWORD not in told(failure.value) + caplog.text
    assert "abc123def" not in told(failure.value) + caplog.text


async def test_a_harmless_cause_is_kept() -> None:
    def fail(texts: list[str]) -> list[list[float]]:
        raise RuntimeError("out of memory")

    memory = PersistentMemory("ann", store=TemporaryStore(), embedding=CallableEmbedding(fail, id="failing"))
    with pytest.raises(PersistentMemoryError) as failure:
        await memory.remember("Likes tea")
    assert isinstance(failure.value.__cause__, RuntimeError)


async def test_secrets_in_a_models_error_are_removed(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(ReplayChatCompletionClient):
        async def create(self, *args: Any, **kwargs: Any) -> Any:
            raise ValueError(f"Incorrect API key: Bearer {PASSWORD}0123456789")

    extractor = ModelExtractor(Failing([]), every=1)
    memory = PersistentMemory("ann", store=TemporaryStore(), embedding=words(), extractor=extractor)
    agent = AssistantAgent("assistant", ReplayChatCompletionClient(["Hello."]), memory=[memory])
    await agent.run(task="I live in Porto with two cats, and I work at the harbour.")
    await memory.flush()
    await memory.close()
    assert "cannot be asked" in caplog.text
    assert PASSWORD not in caplog.text


def test_an_address_with_a_password_is_not_dumped_with_a_model_client() -> None:
    client = OpenAIChatCompletionClient(
        model="gpt-4o",
        api_key="x",
        base_url=f"https://ann:{PASSWORD}@example.org/v1",
        default_headers={"X-Team": "blue"},
    )
    dumped = PersistentMemory("ann", extractor=ModelExtractor(client)).dump_component()
    assert PASSWORD not in dumped.model_dump_json()
    assert "blue" in dumped.model_dump_json()
    with pytest.raises(ValueError, match="dumped without its"):
        Memory.load_component(dumped)


@pytest.mark.parametrize("field", ["token", "port", "headers_env"])
def test_configuration_errors_do_not_repeat_values(field: str) -> None:
    dumped = ProfileMemory("ann", store=ServerStore("example.org")).dump_component()
    dumped.config["store"][field] = PASSWORD
    with pytest.raises(ValueError, match=field) as refusal:
        Memory.load_component(dumped)
    assert PASSWORD not in str(refusal.value)


def test_tracebacks_in_logs_are_redacted(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("autogen_persistent_memory")
    try:
        raise RuntimeError(f"https://ann:{PASSWORD}@example.org")
    except RuntimeError as error:
        logger.warning("It failed: %r", error, exc_info=error)
        logger.exception("It failed; please report this.")
    assert caplog.text.count("RuntimeError") >= 3
    assert PASSWORD not in caplog.text

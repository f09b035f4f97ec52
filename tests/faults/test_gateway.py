"""A gateway in front of a Chroma server: authentication, which requests are retried, and which are not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from toys import words
from unreliable import Gateway, gateway_to

from autogen_persistent_memory import PersistentMemory, ServerStore, StoreUnavailableError


@pytest.fixture
def gateway(chroma_server: tuple[str, int]) -> Iterator[Gateway]:
    with gateway_to(chroma_server) as gateway:
        yield gateway


def behind(gateway: Gateway, namespace: str, **options: object) -> PersistentMemory:
    store = ServerStore("127.0.0.1", gateway.port, **options)  # type: ignore[arg-type]
    return PersistentMemory(namespace, store=store, embedding=words())


async def test_token_and_headers_come_from_the_environment(
    gateway: Gateway, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.wants = {"authorization": "Bearer s3cret", "x-team": "blue"}
    monkeypatch.setenv("MY_TOKEN", "s3cret")
    monkeypatch.setenv("MY_TEAM", "blue")
    async with behind(gateway, namespace, token_env="MY_TOKEN", headers_env={"X-Team": "MY_TEAM"}) as memory:
        await memory.remember("Likes tea")
        assert (await memory.recall("tea")).text == "- Likes tea"
        assert "s3cret" not in memory.dump_component().model_dump_json()


@pytest.mark.parametrize(
    ("token", "reason"), [(None, "MY_TOKEN, which holds .*token, is not set"), ("wrong", "Who are")]
)
async def test_a_missing_or_wrong_token_is_explained(
    gateway: Gateway, namespace: str, monkeypatch: pytest.MonkeyPatch, token: str | None, reason: str
) -> None:
    gateway.wants = {"authorization": "Bearer s3cret"}
    if token is not None:
        monkeypatch.setenv("MY_TOKEN", token)
    memory = behind(gateway, namespace, token_env="MY_TOKEN")
    with pytest.raises(StoreUnavailableError, match=reason):
        await memory.remember("Likes tea")
    assert not memory._engine.data.connection.breaker.is_open
    await memory.close()


@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_idempotent_requests_are_retried(gateway: Gateway, namespace: str, status: int) -> None:
    async with behind(gateway, namespace) as memory:
        await memory.remember("Likes tea")
        for call in (memory.remember("Likes coffee"), memory.recall("tea"), memory.forget(containing="coffee")):
            gateway.failures = [status, status]
            await call
        assert [record.content for record in await memory.records()] == ["Likes tea"]


async def test_other_requests_are_not_retried(gateway: Gateway, namespace: str) -> None:
    async with behind(gateway, namespace) as memory:
        await memory.remember("Likes tea")
        await memory.recall("tea")  # so that no background read takes the failure instead
        await memory.flush()  # so that no housekeeping gets the failure in its place
        table: Any = memory._engine.data.table("profile")

        def drop(client: Any) -> None:
            gateway.failures = [503]
            client.delete_collection(table._name)

        with pytest.raises(StoreUnavailableError, match="503"):
            await table._call(drop, writes=True)
        assert [status for method, _, status in gateway.requests if method == "DELETE"] == [503]
        assert [record.content for record in await memory.records()] == ["Likes tea"]

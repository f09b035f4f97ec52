"""A chat server for many users: one process, a namespace for each user, a session for each chat.

    python samples/web_chat.py                                             serves on http://127.0.0.1:8080 until Ctrl-C
    curl -N 127.0.0.1:8080/users/ann/chats/monday -d "I prefer tea."       talk; the reply is streamed
    curl 127.0.0.1:8080/users/ann/memories                                 Ann's memories
    curl 127.0.0.1:8080/users/ann/chats                                    her chats

Stop it and start it again: chats continue. The memories are in ~/.autogen_memory, or in the folder AUTOGEN_MEMORY_PATH; when it is
stopped, `autogen-memory list -n chat/ann` shows Ann's. In production the user's name comes from your login, not from the URL; and for more than one process use a `ServerStore`
(samples/many_processes.py). Starlette comes with `pip install "autogen-persistent-memory[samples]"`.

The model is scripted; samples/models.py says how to use a real one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from weakref import WeakValueDictionary

import uvicorn
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import MemoryQueryEvent, ModelClientStreamingChunkEvent
from models import model
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from autogen_persistent_memory import EmbeddedStore, NamespaceError, PersistentMemory

STORE = EmbeddedStore()  # all users in one folder: a namespace is the boundary between them
TURNS: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()


async def talk(request: Request) -> Response:
    """Answer a user's message in a chat."""
    text = (await request.body()).decode()
    user, chat = request.path_params["user"], request.path_params["chat"]
    memory = PersistentMemory(f"chat/{user}", session=chat, store=STORE)
    return StreamingResponse(answer(memory, text), media_type="application/x-ndjson")


async def answer(memory: PersistentMemory, text: str) -> AsyncIterator[str]:
    """Run one turn, and yield its events as JSON lines.

    Between turns only memory keeps state, so the number of chats does not matter.
    """
    turn = TURNS.setdefault((memory.namespace, memory.session.session), asyncio.Lock())  # one at a time in each chat
    async with turn, memory:
        agent = AssistantAgent("assistant", model_client=model(["I see."]), memory=[memory], model_client_stream=True)
        await memory.session.load(agent)
        async for event in memory.observe(agent.run_stream(task=text), save=agent):
            if isinstance(event, MemoryQueryEvent):
                yield json.dumps({"remembered": [str(found.content) for found in event.content]}) + "\n"
            elif isinstance(event, ModelClientStreamingChunkEvent):
                yield json.dumps({"said": event.content}) + "\n"


async def memories(request: Request) -> Response:
    """Return a user's memories, or (DELETE) delete them all, with the chats."""
    async with PersistentMemory(f"chat/{request.path_params['user']}", store=STORE) as memory:
        if request.method == "DELETE":
            await memory.clear()
        return JSONResponse([record.content for record in await memory.profile.records()])


async def chats(request: Request) -> Response:
    """Return the chats of a user, newest first."""
    async with PersistentMemory(f"chat/{request.path_params['user']}", store=STORE) as memory:
        return JSONResponse([{"name": chat.name, "messages": chat.messages} for chat in await memory.sessions()])


async def malformed(_: Request, error: Exception) -> Response:
    """Answer 400 to an invalid name of a user or a chat."""
    return JSONResponse({"error": str(error)}, status_code=400)


@contextlib.asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    """Keep the store and the embedding open while the server runs, so that no turn waits for them.

    A second process on the same folder fails here with `StoreLockedError`, instead of answering without memory.
    """
    async with PersistentMemory("chat", store=STORE):
        yield


app = Starlette(
    routes=[
        Route("/users/{user}/chats/{chat}", talk, methods=["POST"]),
        Route("/users/{user}/chats", chats),
        Route("/users/{user}/memories", memories, methods=["GET", "DELETE"]),
    ],
    exception_handlers={NamespaceError: malformed},
    lifespan=lifespan,
)


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8080
    print(f"Serving on http://127.0.0.1:{port} until Ctrl-C.", flush=True)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")

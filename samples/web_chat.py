"""A chat server for many users: one process, a namespace for each user, a session for each chat.

    python samples/web_chat.py                                             serves on http://127.0.0.1:8080 until Ctrl-C
    curl -N 127.0.0.1:8080/users/ann/chats/monday -d "I prefer tea."       talk; the reply comes as it is written
    curl 127.0.0.1:8080/users/ann/memories                                 what is known about Ann
    curl 127.0.0.1:8080/users/ann/chats                                    what she talked about

Stop it and start it again: chats go on where they were. The memories live in ~/.autogen_memory, or where AUTOGEN_MEMORY_PATH
says. In real life the name of the user comes from your login, not from the address; and for more than one process take a
`ServerStore` (samples/many_processes.py). Starlette comes with `pip install "autogen-persistent-memory[samples]"`.

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
    """The user says something in a chat."""
    text = (await request.body()).decode()
    user, chat = request.path_params["user"], request.path_params["chat"]
    memory = PersistentMemory(f"chat/{user}", session=chat, store=STORE)
    return StreamingResponse(answer(memory, text), media_type="application/x-ndjson")


async def answer(memory: PersistentMemory, text: str) -> AsyncIterator[str]:
    """One turn, a line for each thing that happens in it.

    Nothing is kept between two turns but what memory keeps, so that it does not matter how many chats there are.
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
    """What is known about a user, or (DELETE) nothing any more: also what was said in the chats."""
    async with PersistentMemory(f"chat/{request.path_params['user']}", store=STORE) as memory:
        if request.method == "DELETE":
            await memory.clear()
        return JSONResponse([record.content for record in await memory.profile.records()])


async def chats(request: Request) -> Response:
    """The chats of a user, newest first."""
    async with PersistentMemory(f"chat/{request.path_params['user']}", store=STORE) as memory:
        return JSONResponse([{"name": chat.name, "messages": chat.messages} for chat in await memory.sessions()])


async def malformed(_: Request, error: Exception) -> Response:
    """A user or a chat by a name that cannot be one."""
    return JSONResponse({"error": str(error)}, status_code=400)


@contextlib.asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    """Keep the store and the embedding open from start to end, so that no turn waits for them.

    A second process on the same folder ends here, with `StoreLockedError`, instead of answering without memory.
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
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]) if len(sys.argv) > 1 else 8080, log_level="warning")

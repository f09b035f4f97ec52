"""One memory for many processes: two write at the same time, a third one recalls both.

Run `python samples/many_processes.py`. It starts `chroma run`, which comes with Chroma, on a free port of loopback, and stops
it at the end. In production the server runs all the time (`autogen-memory share --path memories`), and `ServerStore` gets its
address. A folder (`EmbeddedStore`) can be open in one process at a time; a second process gets a `StoreLockedError`.

The model is scripted; samples/models.py says how to use a real one.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from autogen_agentchat.agents import AssistantAgent
from models import model
from showing import show_run

from autogen_persistent_memory import PersistentMemory, RecallPolicy, ServerStore


async def talk(port: int, text: str, reply: str) -> None:
    """Run a turn; all processes use the same namespace on the same server."""
    patient = RecallPolicy(deadline=20)  # wait for a busy machine instead of answering without memory after 2 seconds
    async with PersistentMemory("customer-7", store=ServerStore("127.0.0.1", port), policy=patient) as memory:
        agent = AssistantAgent("assistant", model_client=model([reply]), memory=[memory])
        await show_run(agent.run_stream(task=text))


def start(port: int, text: str, reply: str) -> subprocess.Popen[str]:
    """Start another process that runs a turn."""
    command = [sys.executable, __file__, str(port), text, reply]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@contextlib.contextmanager
def chroma_server(folder: str) -> Iterator[int]:
    """Run a Chroma server during the `with` block, and yield its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    chroma = Path(sys.executable).with_name("chroma")
    command = [str(chroma), "run", "--path", folder, "--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        while True:
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            if server.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"chroma run did not start; try it yourself: {' '.join(command)}")
            time.sleep(0.05)
        yield port
    finally:
        server.terminate()
        server.wait()


def main() -> None:
    """Start the server, and three processes."""
    if len(sys.argv) == 4:
        asyncio.run(talk(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
        return
    with tempfile.TemporaryDirectory() as folder, chroma_server(folder) as port:
        print("── Two processes at the same time ──", flush=True)
        together = [
            start(port, "My name is Ines, and I prefer to be called by phone.", "I have made a note of it."),
            start(port, "We decided to keep the blue sofa because it fits the room.", "I am glad to hear it."),
        ]
        for process in together:
            print(process.communicate()[0])
        print("── A third one: this process ──")
        asyncio.run(talk(port, "How do I reach the customer, and which sofa did they keep?", "By phone; the blue one."))


if __name__ == "__main__":
    main()

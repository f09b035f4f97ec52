"""The cookbook is true: its application runs in real workers, and a second one on the same folder ends at start-up."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from conftest import free_port, run_chroma
from documents import code_blocks, sections

RECIPES = sections((Path(__file__).parents[2] / "docs" / "cookbook.md").read_text(encoding="utf-8"))
SECONDS = 60.0
ECHO = '''
from autogen_core.models import CreateResult, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient


class Echo(ReplayChatCompletionClient):
    """Says what it sees."""

    def __init__(self):
        super().__init__(["never said"])

    async def create(self, messages, **_):
        seen = "\\n".join(str(message.content) for message in messages)
        return CreateResult(finish_reason="stop", content=seen, usage=RequestUsage(0, 0), cached=False)
'''


@pytest.fixture
def application(tmp_path: Path) -> Path:
    """The folder with the recipe's application, whose model repeats what it sees."""
    (code,) = re.findall(r"^```py\n(.*?)^```$", RECIPES["FastAPI"], re.DOTALL | re.MULTILINE)
    offline = code.replace("from autogen_ext.models.openai import OpenAIChatCompletionClient", "from echo import Echo")
    offline = offline.replace('OpenAIChatCompletionClient(model="gpt-4o-mini")', "Echo()")
    assert "OpenAI" not in offline.replace("OPENAI", "")
    (tmp_path / "echo.py").write_text(ECHO)
    (tmp_path / "main.py").write_text(offline)
    return tmp_path


@contextlib.contextmanager
def worker(application: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A worker, started as the recipe says, and its port."""
    assert "uvicorn main:app --port 8080" in RECIPES["FastAPI"]
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "main:app", "--port", str(port)],
        cwd=application,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
    )
    try:
        yield process, port
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def answering(application: Path) -> Iterator[Callable[[str, str, str], str]]:
    """A worker that has started: say something as a user in a chat, and get what the model saw."""
    with (
        worker(application) as (process, port),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=SECONDS) as web,
    ):
        until = time.monotonic() + SECONDS
        while True:
            with contextlib.suppress(httpx.ConnectError):
                web.get("/docs")
                break
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until
            time.sleep(0.05)

        def say(user: str, chat: str, text: str) -> str:
            answer = web.post(f"/users/{user}/chats/{chat}", json={"text": text})
            return str(answer.raise_for_status().json()["text"])

        yield say
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0


def test_a_second_worker_on_the_folder_ends_at_start_up_and_the_first_goes_on_remembering(application: Path) -> None:
    with answering(application) as say:
        say("ann", "monday", "I prefer green tea.")
        with worker(application) as (second, _):
            _, complaints = second.communicate(timeout=SECONDS)
        assert second.returncode == 3
        assert "StoreLockedError: The store" in complaints
        assert f"autogen-memory share --path {application / 'memories'}" in complaints
        assert "- The user prefers green tea." in say("ann", "tuesday", "What do I like to drink?")
        assert "green tea" not in say("ben", "monday", "What do I like to drink?")
    with answering(application) as say:
        assert "I prefer green tea." in say("ann", "monday", "Where were we?")


def test_two_workers_share_a_server(application: Path) -> None:
    (change,) = code_blocks(RECIPES["Several workers"])
    (line,) = re.findall("^store = .*$", change, re.MULTILINE)
    (application / "server").mkdir()
    with run_chroma(application / "server") as (_, port):
        code = (application / "main.py").read_text().replace("EmbeddedStore, ", "ServerStore, ")
        code = re.sub("^store = .*$", line.replace("8000", str(port)), code, flags=re.MULTILINE)
        (application / "main.py").write_text(code)
        with answering(application) as say, answering(application) as say_elsewhere:
            say("ann", "monday", "I prefer green tea.")
            assert "- The user prefers green tea." in say_elsewhere("ann", "tuesday", "What do I like to drink?")

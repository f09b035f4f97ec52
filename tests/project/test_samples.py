"""Every sample runs in an empty home without a network, and shows what it promises."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import nbformat
import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient
from conftest import free_port
from local_model import missing
from models import model
from nbformat.v4 import new_code_cell, new_notebook, new_output

from autogen_persistent_memory import EmbeddedStore, SessionMemory

SAMPLES = Path(__file__).parents[2] / "samples"
NOTEBOOKS = sorted(path.name for path in SAMPLES.glob("*.ipynb"))
SECONDS = 300
OFFLINE = """
import socket

def connect(self, address, connect=socket.socket.connect):
    if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
        raise OSError(f"There is no network for samples: {address}")
    return connect(self, address)

socket.socket.connect = connect
"""


@pytest.fixture
def environment(tmp_path: Path, home: Path) -> dict[str, str]:
    """An empty home, no keys and no network, for a process and its children."""
    offline = tmp_path / "offline"
    offline.mkdir()
    (offline / "sitecustomize.py").write_text(OFFLINE)
    paths = [str(offline), *filter(None, [os.environ.get("PYTHONPATH")])]
    kept = {name: value for name, value in os.environ.items() if name not in ("OPENAI_API_KEY", "SAMPLE_MODEL")}
    return kept | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONWARNINGS": "default"}


def attempt(environment: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    """Run a sample, whatever its exit code."""
    return subprocess.run(
        [sys.executable, *command], cwd=SAMPLES, env=environment, capture_output=True, text=True, timeout=SECONDS
    )


def run(environment: dict[str, str], *command: str) -> str:
    """Run a sample, which must print nothing on stderr, and return its output."""
    done = attempt(environment, *command)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return done.stdout


def test_samples_have_no_network(environment: dict[str, str]) -> None:
    tried = attempt(environment, "-c", "import socket; socket.create_connection(('192.0.2.1', 80), timeout=1)")
    assert "There is no network for samples" in tried.stderr


def turns(printed: str) -> list[tuple[str, str, list[str]]]:
    """Return who said what in a printed conversation, and the memories that were injected for it."""
    whole = re.sub(r"\n {12}", " ", printed)
    found: list[tuple[str, str, list[str]]] = []
    injected: list[str] = []
    for who, text in re.findall(r"^ +(\(?\w+) (.*)$", whole, re.MULTILINE):
        if who == "injected":
            injected.append(" ".join(text.split()))
        else:
            found.append((who, text, injected))
            injected = []
    return found


DECISION = "interaction Add a login. We decided to keep sessions in PostgreSQL, because of JSONB."
LESSON = "interaction The login form crashed when the name was empty; it has to check its fields before it posts."
CHECKLIST = "lesson Ask how long a text in a form may be."


def test_a_new_team_knows_what_was_decided_and_learned_and_only_the_reviewer_has_the_checklist(
    environment: dict[str, str], home: Path
) -> None:
    monday, friday = run(environment, "coding_team.py").split("── Friday")
    assert LESSON not in [text for _, _, injected in turns(monday) for text in injected]
    team = turns(friday)
    assert [who for who, _, _ in team] == ["user", "planner", "coder", "reviewer"]
    for who, _, injected in team[1:]:
        assert {DECISION, LESSON} <= set(injected)
        assert (CHECKLIST in injected) == (who == "reviewer")
    assert list(home.iterdir()) == []


def test_the_model_remembers_recalls_and_forgets_by_its_tools(environment: dict[str, str]) -> None:
    printed = run(environment, "tools.py")
    (id,) = set(re.findall(r"\(id: (\w+)\)", printed))
    assert f"tool Memory stored (id: {id})" in printed
    assert f"tool - Invoices go to accounting@example.com. (id: {id})" in printed
    assert f"tool Memory forgotten (id: {id})" in printed
    assert printed.endswith("Memories left: 0\n")


def test_a_group_chat_continues_in_a_new_process_with_the_next_speaker(environment: dict[str, str]) -> None:
    before, rest = run(environment, "resume_group_chat.py").split("── It died (9)")
    after, guest = rest.split("── A guest")
    assert [who for who, _, _ in turns(before)] == ["user", "planner", "scout"]
    assert [who for who, _, _ in turns(after)] == ["(user", "(planner", "(scout", "treasurer", "planner"]
    told = turns(guest)[1][2]
    assert told == [f"interaction {text.strip(')')}" for _, text, _ in turns(after)]


def test_a_third_process_recalls_what_two_others_captured_at_the_same_time(environment: dict[str, str]) -> None:
    (_, (_, _, injected)) = turns(run(environment, "many_processes.py").split("── A third")[1])
    assert {
        "preference The user prefers to be called by phone.",
        "decision The user decided to keep the blue sofa because it fits the room.",
    } <= set(injected)


@contextlib.asynccontextmanager
async def served(environment: dict[str, str]) -> AsyncIterator[httpx.AsyncClient]:
    """Run the web chat until it is stopped; it must end without an error."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SAMPLES / "web_chat.py"), str(port), env=environment, stderr=subprocess.PIPE
    )
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=SECONDS) as client:
            while process.returncode is None:
                with contextlib.suppress(httpx.ConnectError):
                    await client.get("/users/nobody/memories")
                    break
                await asyncio.sleep(0.05)
            yield client
        process.send_signal(signal.SIGINT)
        _, complaints = await asyncio.wait_for(process.communicate(), SECONDS)
        assert (process.returncode, complaints) == (0, b"")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def say(client: httpx.AsyncClient, user: str, chat: str, text: str) -> tuple[list[str], str]:
    """Send a message, and return the injected memories and the reply."""
    answer = await client.post(f"/users/{user}/chats/{chat}", content=text)
    lines = [json.loads(line) for line in answer.raise_for_status().text.splitlines()]
    remembered = [memory for line in lines for memory in line.get("remembered", ())]
    return remembered, "".join(line.get("said", "") for line in lines)


async def test_concurrent_users_never_see_each_others_memories_and_continue_after_a_restart(
    environment: dict[str, str], home: Path
) -> None:
    likes = {"ann": "The user prefers green tea.", "ben": "The user prefers black coffee."}
    async with served(environment) as client:
        told = await asyncio.gather(
            say(client, "ann", "monday", "I prefer green tea."), say(client, "ben", "monday", "I prefer black coffee.")
        )
        assert [reply for _, reply in told] == ["I see.", "I see."]
        asked = await asyncio.gather(*(say(client, user, "tuesday", "What do I like to drink?") for user in likes))
        assert [remembered for remembered, _ in asked] == [[likes["ann"]], [likes["ben"]]]
        chats = (await client.get("/users/ann/chats")).json()
        assert chats == [{"name": "tuesday", "messages": 2}, {"name": "monday", "messages": 2}]
        malformed = await client.post("/users/%20/chats/monday", content="Hello!")
        assert (malformed.status_code, list(malformed.json())) == (400, ["error"])
    async with served(environment) as client:
        for user, like in likes.items():
            assert (await client.get(f"/users/{user}/memories")).json() == [like]
        await asyncio.gather(*(say(client, "ann", "monday", text) for text in ("Who are you?", "Where are you?")))
        assert (await client.delete("/users/ben/memories")).json() == []
    async with SessionMemory("chat/ann", "monday", store=EmbeddedStore(home / ".autogen_memory")) as chat:
        said = [(message.source, message.content) for message in await chat.messages()]
        asked_now = [text for _, text in said[2::2]]
        assert said[:2] == [("user", "I prefer green tea."), ("assistant", "I see.")]
        assert sorted(asked_now) == ["Where are you?", "Who are you?"]
        assert [source for source, _ in said] == ["user", "assistant"] * 3
        agent = AssistantAgent("assistant", model_client=model([]))
        assert await chat.load(agent)
        context = [message.content for message in await agent.model_context.get_messages()]
        assert [text for text in context if text in ("I prefer green tea.", *asked_now)] == [
            "I prefer green tea.",
            *asked_now,
        ]


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_a_notebook_still_has_its_saved_outputs(notebook: str, environment: dict[str, str], home: Path) -> None:
    assert run(environment, "execute.py", "--check", notebook) == f"{notebook}: unchanged\n"
    assert not (home / ".autogen_memory").exists()


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        (["print('other')", "print('saved'); 1"], ["-stdout: saved\n+stdout: other", "+execute_result: text/plain"]),
        (["1 / 0"], ["ZeroDivisionError"]),
    ],
)
def test_a_notebook_with_other_outputs_is_detected(
    cells: list[str], found: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    saved = [new_output("stream", text="saved\n")]
    path = tmp_path / "other.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell(code, outputs=saved) for code in cells]), path)
    written = path.read_bytes()
    done = attempt(environment, "execute.py", "--check", str(path))
    assert done.returncode == 1
    assert [text for text in found if text not in done.stdout + done.stderr] == []
    assert path.read_bytes() == written


def test_the_notebooks_are_saved_with_their_outputs() -> None:
    for name in NOTEBOOKS:
        cells = [cell for cell in nbformat.read(SAMPLES / name, as_version=4).cells if cell.cell_type == "code"]
        assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
        assert any(cell.outputs for cell in cells)


def test_the_table_of_samples_names_every_file() -> None:
    table = (SAMPLES / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\[[\w.]+\]\(([\w.]+)\)", table))
    assert named == {path.name for path in SAMPLES.iterdir() if path.suffix in (".py", ".ipynb")}


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
@pytest.mark.xdist_group("small model")
def test_a_sample_runs_on_the_real_small_model(environment: dict[str, str]) -> None:
    unclosed = "ignore::ResourceWarning"  # the samples do not close their clients
    printed = run(environment | {"SAMPLE_MODEL": "local", "PYTHONWARNINGS": unclosed}, "coding_team.py")
    assert "In PostgreSQL, as decided." not in printed  # the scripted reply
    planner = turns(printed.split("── Friday")[1])[1]
    assert DECISION in planner[2]
    assert len(planner[1]) > 20


def test_the_environment_chooses_the_samples_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SAMPLE_MODEL", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    assert isinstance(model(["Hello."]), OpenAIChatCompletionClient)
    monkeypatch.setenv("SAMPLE_MODEL", "script")
    assert not isinstance(model(["Hello."]), OpenAIChatCompletionClient)
    monkeypatch.setenv("SAMPLE_MODEL", "large")
    with pytest.raises(SystemExit, match="script, local or openai"):
        model(["Hello."])

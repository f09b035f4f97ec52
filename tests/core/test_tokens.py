"""Tokens are counted without a network, and never underestimated by much."""

import subprocess
import sys

import pytest

from autogen_persistent_memory.core.tokens import count_tokens, estimate_tokens

# Measured with tiktoken's cl100k_base.
MEASURED = [
    ("The user prefers dark mode and works as a software engineer in Munich.", 14),
    ("Uses PostgreSQL, because of JSONB", 7),
    ("Der Benutzer bevorzugt dunkle Oberflächen und arbeitet seit drei Jahren in München.", 22),
    ("ユーザーはダークモードを好み、東京でソフトウェアエンジニアとして働いています。", 40),
    ("用户喜欢深色模式，并且在北京担任软件工程师。", 25),
    ("Пользователь предпочитает тёмную тему и работает в Москве инженером. ", 31),
    ("550e8400-e29b-41d4-a716-446655440000 3f2b9c71", 26),
    ("https://example.com/a/b?c=d&e=f#g", 12),
    ("Mtumiaji anapendelea chai kuliko kahawa na anafanya kazi kama mhandisi wa programu", 29),
    ("Użytkownik woli ciemny motyw i pracuje jako inżynier oprogramowania we Wrocławiu", 27),
    ("المستخدم يفضل الوضع الداكن ويعمل مهندس برمجيات في القاهرة. ", 44),
    ("", 0),
]


@pytest.mark.parametrize(("text", "tokens"), MEASURED)
def test_the_estimate_errs_on_the_high_side_but_not_wildly(text: str, tokens: int) -> None:
    assert 0.85 * tokens <= estimate_tokens(text) <= 2 * tokens + 1


def test_counting_never_waits_for_a_download() -> None:
    """Counting returns at once in a process whose connections all hang."""
    code = (
        "import socket, time\n"
        "socket.socket.connect = lambda *a: time.sleep(60)\n"
        "from autogen_persistent_memory.core.tokens import count_tokens\n"
        "start = time.monotonic(); count_tokens('hello world'); assert time.monotonic() - start < 2"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30, env={"TIKTOKEN_CACHE_DIR": "/nonexistent"})


def test_special_tokens_in_a_memory_are_just_text() -> None:
    assert count_tokens("<|endoftext|>") > 0

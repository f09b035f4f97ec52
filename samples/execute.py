"""Run the notebooks and save their outputs, or check that the saved outputs are still right.

    python samples/execute.py                             run all of them, and save them (`make notebooks`)
    python samples/execute.py samples/quickstart.ipynb    run one of them
    python samples/execute.py --check                     save nothing, and print the differences

What a notebook prints must be the same every time. What it displays (pictures, and scores, which depend on the processor) may
differ, but must be of the same kind.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from traitlets.config import Config

SAMPLES = Path(__file__).parent
SECONDS_A_CELL = 120


def executed(notebook: NotebookNode) -> NotebookNode:
    """Return a copy of the notebook, run in a process and an empty folder of its own."""
    copy = nbformat.from_dict(notebook)
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(SAMPLES), *filter(None, [os.environ.get("PYTHONPATH")])]
        client = NotebookClient(
            copy,
            timeout=SECONDS_A_CELL,
            kernel_name="python3",
            coalesce_streams=True,
            resources={"metadata": {"path": folder}},
            config=Config(
                KernelManager={"transport": "ipc", "ip": f"{folder}/kernel"}
            ),  # Unix sockets instead of ports
        )
        client.execute(env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "SAMPLE_MODEL": "script"})
    return tidied(copy)


def tidied(notebook: NotebookNode) -> NotebookNode:
    """Remove the metadata that changes with every run or machine."""
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata = {}
    return notebook


def shown(notebook: NotebookNode) -> list[str]:
    """Return what each cell prints, and the kinds of what it displays."""
    lines: list[str] = []
    for number, cell in enumerate(notebook.cells):
        lines.append(f"cell {number}:")
        for output in cell.get("outputs", ()):
            if output.output_type == "stream":
                lines += [f"{output.name}: {line}" for line in output.text.splitlines()]
            else:
                lines.append(f"{output.output_type}: {', '.join(sorted(output.get('data', ())))}")
    return lines


def main() -> None:
    """Run the given notebooks, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", type=Path, help="the notebooks (default: all samples)")
    parser.add_argument("--check", action="store_true", help="save nothing, and fail if an output differs")
    arguments = parser.parse_args()
    differ = False
    for path in arguments.notebooks or sorted(SAMPLES.glob("*.ipynb")):
        saved = nbformat.read(path, as_version=4)
        fresh = executed(saved)
        if not arguments.check:
            nbformat.write(fresh, path)
            print(f"{path.name}: run and saved")
            continue
        difference = list(difflib.unified_diff(shown(saved), shown(fresh), "saved", "now", lineterm=""))
        print(f"{path.name}: {'unchanged' if not difference else 'differs'}", *difference, sep="\n")
        differ = differ or bool(difference)
    sys.exit(differ)


if __name__ == "__main__":
    main()

"""The notebooks of docs/ run from their first cell to their last, each in a kernel and a folder of its own."""

import asyncio
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from guides import ROOT

from edgefl.wire import broker as brokers

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def played(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    nbformat = pytest.importorskip("nbformat", reason="pip install nbformat nbclient ipykernel")
    nbclient = pytest.importorskip("nbclient", reason="pip install nbformat nbclient ipykernel")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    book = nbformat.read(path, as_version=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Jupyter's own packages
        client = nbclient.NotebookClient(book, timeout=240, resources={"metadata": {"path": str(folder)}})
        with ThreadPoolExecutor(1) as pool:  # a browser of another test has a loop in our thread
            pool.submit(lambda: asyncio.run(client.async_execute())).result()  # `execute` leaves a loop open
    return book


@pytest.mark.broker
@pytest.mark.night
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_its_figure(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "three_agents" in path.name and not (brokers.find_mosquitto() or brokers.has_iotcore()):
        pytest.skip("no MQTT broker on this machine")
    book = played(path, tmp_path, monkeypatch)
    shown = [output.get("data", {}) for cell in book.cells for output in cell.get("outputs", ())]
    assert any("image/png" in data for data in shown)
    assert any("accuracy" in data.get("text/plain", "") for data in shown)  # the line that follows the rounds


def test_there_are_three_without_anything_of_a_machine_in_them() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["first_steps", "own_algorithm", "three_agents"]
    for path in NOTEBOOKS:
        text = path.read_text(encoding="utf-8")
        assert '"outputs": []' in text
        assert '"execution_count": null' in text
        assert "image/png" not in text

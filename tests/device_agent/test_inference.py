"""What a model says of new samples on the device, and what is said where it has no single word for each."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from device_agent.durable.own_models import OwnModels
from device_agent.shell.inference import OWN, predict
from edgefl.base.errors import ConfigError
from edgefl.system.disk import FolderDisk


def of_a_kind(path: Path) -> Any:
    return SimpleNamespace(path=path, form=SimpleNamespace(kind="segmentation"), logits=lambda x: x)


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("model.onnx", "; run the file with onnxruntime itself, or `agent evaluate`"),
        (
            "run.1.own",
            "; `agent export` it, and run what that writes with onnxruntime itself, or `agent evaluate --own`",
        ),
    ],
)
def test_a_model_without_one_word_for_a_sample_says_what_can_be_done_with_its_file(file: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        predict(of_a_kind(Path(file)), np.zeros((1, 2)))
    assert str(refused.value).endswith(f"no single class or numbers{words}")


def test_a_devices_own_model_is_known_by_the_suffix_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "job.life.1.own").touch()
    assert Path(OwnModels(FolderDisk(tmp_path)).where("job.life")).suffix == OWN

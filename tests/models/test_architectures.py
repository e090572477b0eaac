"""Networks of torchvision and Hugging Face train on onnxruntime as in torch, or are refused with the line."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUICK = ["squeezenet1_1", "GPT2LMHeadModel"]  # seconds; each of the others takes up to a minute


def script():
    spec = importlib.util.spec_from_file_location("architectures", ROOT / "scripts" / "architectures.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["architectures"] = module  # where dataclasses look
    spec.loader.exec_module(module)
    return module


architectures = script()


def all_of_them():
    slow = pytest.mark.skipif(not os.environ.get("EDGEFL_SLOW"), reason="set EDGEFL_SLOW=1 to run the large networks")
    return [name if name in QUICK else pytest.param(name, marks=slow) for name in architectures.ALL]


@pytest.mark.filterwarnings("ignore")  # what libraries say about themselves
@pytest.mark.parametrize("name", all_of_them())
def test_a_network_agrees_with_torch(name):
    if name in architectures.HUGGING_FACE:
        pytest.importorskip("transformers", reason="pip install edgefl[architectures]")
    verdict = architectures.judge(architectures.ALL[name])
    if verdict.chaotic and not verdict.agrees:
        pytest.skip(f"torch in float32 is itself far from torch in float64: {verdict}")
    assert verdict.agrees, verdict

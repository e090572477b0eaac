"""Does a device work with the oldest versions that we allow? The device's half, in a fresh virtual environment of them.

    python scripts/oldest.py [PYTHON]      PYTHON is the device's, e.g. python3.10; else the one that runs this

This Python, which needs edgefl[coordinator], exports the networks of `edgefl bench device` and takes some steps with
each. The old environment takes the same steps from the same graphs; then it runs the tests of the device's half.
"""
# ruff: noqa: S603, T201, PLC0415 - a script: it prints, starts the Python it has installed, imports what each side has

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ("pytest>=8.3", "pytest-timeout>=2.3", "hypothesis>=6.120", "packaging")
TESTS = (
    *("tests/device_agent", "tests/wire", "tests/device_agent/durable/test_spool.py", "tests/system/test_store.py"),
    *("tests/base/test_vector.py", "tests/learn/test_losses.py", "tests/base/test_seeds.py"),
)
NOT_THERE = ("tests/device_agent/test_light.py", "tests/device_agent/decide/test_session_machine.py")  # they need torch
STEPS, BATCH, RATE = 3, 8, 0.05
CLOSE = 1e-6  # of the largest weight: one machine, two versions of onnxruntime, each in float32


def oldest(python: str) -> list[str]:
    """The base dependencies for this version of Python, each at its lower bound."""
    from packaging.requirements import Requirement

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    requirements = [Requirement(line) for line in table["project"]["dependencies"]]
    device = {"python_version": python, "python_full_version": f"{python}.0"}
    bounds = [
        (r.name, re.search(r">=([^,]+)", str(r.specifier)))
        for r in requirements
        if not r.marker or r.marker.evaluate(device)
    ]
    return [f"{name}=={bound[1]}" for name, bound in bounds if bound]


def export(folder: Path) -> None:
    """The graphs of every network, where there is torch."""
    from edgefl.learn.models.build import build_module
    from edgefl.learn.models.onnx.bundle import pack
    from edgefl.learn.models.onnx_export import export as exported
    from edgefl.ops.bench.cases import CASES, PLAN

    for case in CASES:
        module = build_module(case.network, case.sample, case.classes, seed=0)
        bundle = exported(module, case.sample, dtype="int64" if case.tokens else "float32", plan=PLAN)
        (folder / f"{case.network}.graphs").write_bytes(pack(bundle))


def train(folder: Path, out: Path) -> None:
    """The same steps on every side: the weights that each network ends with."""
    import numpy as np
    import onnxruntime

    import device_agent.start  # noqa: F401 - everything an agent imports must load
    from edgefl.learn.losses import cross_entropy
    from edgefl.learn.models.onnx.bundle import unpack
    from edgefl.learn.models.onnx_backend import OnnxModel
    from edgefl.ops.bench.cases import CASES, samples, training

    ends: dict[str, Any] = {}
    for case in CASES:
        rng = np.random.default_rng(7)
        model = OnnxModel(unpack((folder / f"{case.network}.graphs").read_bytes()), frugal=True)
        w = rng.standard_normal(model.layout.size, np.float32) * np.float32(0.05)
        for _ in range(STEPS):
            shape = (BATCH, *case.sample)
            x = rng.integers(0, 4096, shape) if case.tokens else rng.standard_normal(shape, np.float32)
            z, pullback = model.vjp(w, x)
            w = w - np.float32(RATE) * pullback(cross_entropy(z, rng.integers(0, case.classes, BATCH))[1])
        w = training(model, w, samples(case), BATCH)(STEPS)  # and the same in whole steps
        ends[case.network] = np.concatenate([w, model.logits(w, x).reshape(-1)])
    np.savez(out, **ends)
    print(f"Python {sys.version.split()[0]}, numpy {np.__version__}, onnxruntime {onnxruntime.__version__}")


def compare(ours: Path, theirs: Path) -> bool:
    """Print how far apart the two sides are, network by network; whether all are close."""
    import numpy as np

    close = True
    with np.load(ours) as a, np.load(theirs) as b:
        for name in a:
            gap = float(np.abs(a[name] - b[name]).max() / np.abs(a[name]).max())
            close = close and gap <= CLOSE
            print(f"  {name:12s} {'the same bits' if gap == 0 else f'differs by {gap:.1e}'}")
    return close


def main(python: str) -> int:
    """Everything, in a folder that is gone afterwards."""
    asked = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    version = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    with TemporaryDirectory(prefix="edgefl-oldest-") as temporary:
        folder = Path(temporary)
        subprocess.run([python, "-m", "venv", folder / "venv"], check=True)
        old = str(folder / "venv" / "bin" / "python")
        install = [old, "-m", "pip", "install", "--quiet", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, *oldest(version), *TOOLS], check=True)
        export(folder)
        train(folder, folder / "here.npz")
        ours = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run([old, __file__, "train", folder, folder / "there.npz"], check=True, env=ours)
        close = compare(folder / "here.npz", folder / "there.npz")
        left_out = [f"--ignore={path}" for path in NOT_THERE]
        commands = (["edgefl", "agent", "start", "--help"], ["pytest", "-q", *left_out, *TESTS])
        codes = [subprocess.run([old, "-m", *words], check=False, cwd=ROOT, env=ours).returncode for words in commands]
    return int(not close or any(codes))


if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        train(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        sys.exit(main(*sys.argv[1:] or [sys.executable]))

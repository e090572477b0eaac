import subprocess
import sys

from edgefl.learn.models.torchvision_import import import_torchvision


def test_datasets_transforms_and_models_come_without_a_warning():
    program = (
        "from edgefl.learn.models.torchvision_import import import_torchvision\n"
        "tv = import_torchvision()\n"
        "from torchvision.datasets import MNIST\n"
        "import torch\n"
        "assert tv.transforms.Resize(4)(torch.zeros(1, 8, 8)).shape == (1, 4, 4)\n"
        "assert tv.models.squeezenet1_1(num_classes=7).eval()(torch.zeros(1, 3, 32, 32)).shape == (1, 7)\n"
    )
    out = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert (out.returncode, out.stderr) == (0, "")


def test_a_package_that_imports_torchvision_by_itself_may_be_a_models(tmp_path):
    (tmp_path / "large_package.py").write_text(
        "try:\n    import torchvision\nexcept RuntimeError as error:\n    raise ImportError('torchvision') from error\n"
        "from torch.nn import Linear\n\ndef make(shape, classes):\n    return Linear(shape[0], classes)\n"
    )
    program = (
        "from edgefl.learn.models.build import build_module\nfrom edgefl.system import user_code\n"
        "user_code.allow('large_package:make')\nprint(build_module('large_package:make', (3,), 2, 1))"
    )
    command = [sys.executable, "-c", program]
    out = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (out.stdout, out.returncode) == ("Linear(in_features=3, out_features=2, bias=True)\n", 0), out.stderr


def test_the_second_import_is_the_same_module():
    assert import_torchvision() is import_torchvision()

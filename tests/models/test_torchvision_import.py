import subprocess
import sys

from edgefl.models.torchvision_import import import_torchvision


def test_datasets_transforms_and_models_come_without_a_warning():
    program = (
        "from edgefl.models.torchvision_import import import_torchvision\n"
        "tv = import_torchvision()\n"
        "from torchvision.datasets import MNIST\n"
        "import torch\n"
        "assert tv.transforms.Resize(4)(torch.zeros(1, 8, 8)).shape == (1, 4, 4)\n"
        "assert tv.models.squeezenet1_1(num_classes=7).eval()(torch.zeros(1, 3, 32, 32)).shape == (1, 7)\n"
    )
    out = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert (out.returncode, out.stderr) == (0, "")


def test_the_second_import_is_the_same_module():
    assert import_torchvision() is import_torchvision()

"""Whether this machine has a GPU that CUDA can use, found out without torch, whose import takes 200 MB."""

import ctypes
from functools import cache

DRIVER = "libcuda.so.1"  # comes with NVIDIA's driver, on a Jetson with its system


@cache
def cuda_devices(driver: str = DRIVER) -> int:
    """How many the driver knows; 0 where there is none."""
    try:
        cuda = ctypes.CDLL(driver)
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value

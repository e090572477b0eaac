"""The errors that edgefl raises, under their public name.

>>> import edgefl
>>> issubclass(edgefl.errors.ConfigError, edgefl.errors.EdgeflError)
True
"""

from edgefl.base.errors import *  # noqa: F403 - what is listed there
from edgefl.base.errors import __all__  # noqa: F401 - `help` shows what it names

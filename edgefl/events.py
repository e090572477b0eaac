"""The facts that callbacks are told, under their public name.

>>> import edgefl
>>> edgefl.events.Joined("pi-01", 120).device
'pi-01'
"""

from edgefl.base.events import *  # noqa: F403 - what is listed there
from edgefl.base.events import __all__  # noqa: F401 - `help` shows what it names

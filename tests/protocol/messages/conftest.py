"""Import of kafka-python's schemas before the tests, because it uses a function that Python 3.11 and 3.12 deprecate."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from . import oracles as _oracles  # noqa: F401

"""What tests need to know of the build that runs: compiled modules, or those of Python."""

from __future__ import annotations

import pytest

from understudy.shared.compiled_modules import Build

PURE_ONLY = pytest.mark.skipif(
    Build.name == "compiled", reason="replaces methods of compiled classes, or gives them another class"
)

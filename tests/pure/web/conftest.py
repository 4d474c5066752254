"""An event loop for each test of this folder that is a coroutine."""

from tests.system.topology.conftest import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]

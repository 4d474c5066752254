"""Settings of all tests: a slow machine is no failure, and what its user has calibrated is none of
their business."""

import os
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings

settings.register_profile(
    "pubstorm", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("pubstorm")
os.environ["XDG_STATE_HOME"] = str(Path(tempfile.gettempdir(), "pubstorm-tests-have-none"))
# Where no bytecode is kept, each of some hundred processes compiles all modules for itself.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

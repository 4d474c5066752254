"""Settings of all tests: a slow machine is no failure."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "pubstorm", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("pubstorm")

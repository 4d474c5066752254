"""Many runs: series, searches and calibration."""

"""Packs the four Rust programs into the wheel, under `pubstorm/bin/`: those that cargo builds now,
or those in the folder `PUBSTORM_PROGRAMS`, built before for the platform `PUBSTORM_PLATFORM`. An
editable install needs none of it: there, Pubstorm finds what `make build` has left in
`target/release/`.
"""

import os
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROGRAMS = ("pubstorm-engine", "pubstorm-broker", "pubstorm-proxy", "pubstorm-zmq")
PROFILE = "wheel"
"""The profile of cargo: as for a release, without what only a debugger reads."""


class ProgramsHook(BuildHookInterface[Any]):
    """Adds the programs before a wheel is packed."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the programs and the platform's tag."""
        if self.target_name != "wheel" or version == "editable":
            return
        folder = os.environ.get("PUBSTORM_PROGRAMS") or self._built()
        for program in PROGRAMS:
            path = Path(self.root, folder, program)
            if not path.is_file():
                raise FileNotFoundError(f"{path} is missing: build {program} first")
            build_data["force_include"][str(path)] = f"pubstorm/bin/{program}"
        here = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{os.environ.get('PUBSTORM_PLATFORM') or here}"

    def _built(self) -> Path:
        """The folder of the programs, after cargo has built them for this machine."""
        packages = [word for program in PROGRAMS for word in ("-p", program)]
        command = ["cargo", "build", "--profile", PROFILE, "--locked", *packages]
        subprocess.run(command, cwd=self.root, check=True)
        return Path(os.environ.get("CARGO_TARGET_DIR", "target"), PROFILE)

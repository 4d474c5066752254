"""Builds the four Rust programs into the wheel, under `pubstorm/bin/`. An editable install needs
none of it: there, Pubstorm finds what `make build` has left in `target/release/`.
"""

import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROGRAMS = ("pubstorm-engine", "pubstorm-broker", "pubstorm-proxy", "pubstorm-zmq")


class CargoHook(BuildHookInterface[Any]):
    """Runs cargo before a wheel is packed."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the programs and the platform's tag."""
        if self.target_name != "wheel" or version == "editable":
            return
        packages = [word for program in PROGRAMS for word in ("-p", program)]
        command = ["cargo", "build", "--release", "--locked", *packages]
        subprocess.run(command, cwd=self.root, check=True)
        for program in PROGRAMS:
            built = Path(self.root, "target", "release", program)
            build_data["force_include"][str(built)] = f"pubstorm/bin/{program}"
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"

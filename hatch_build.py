"""Packs Plotly and the four Rust programs into the wheel. The programs are those that cargo builds
now, or those in the folder `PUBSTORM_PROGRAMS`, built before for the platform `PUBSTORM_PLATFORM`.
An editable install needs no program: there, Pubstorm finds what `make build` has left in
`target/release/`.
"""

import gzip
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROGRAMS = ("pubstorm-engine", "pubstorm-broker", "pubstorm-proxy", "pubstorm-zmq")
PLOTLY = "pubstorm/report/plotly.js.gz"
"""Plotly as pages have it. Its Python package is 14 times as large, and not needed by users."""
PROFILE = "wheel"
"""The profile of cargo: as for a release, without what only a debugger reads."""


class ProgramsHook(BuildHookInterface[Any]):
    """Adds the programs before a wheel is packed."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds Plotly, the programs and the platform's tag."""
        if self.target_name != "wheel":
            return
        plotly = self._plotly()
        if version == "editable":
            return
        build_data["force_include"][str(plotly)] = PLOTLY
        for schema in Path(self.root, "contract").glob("*.schema.json"):
            build_data["force_include"][str(schema)] = f"pubstorm/contract/{schema.name}"
        folder = os.environ.get("PUBSTORM_PROGRAMS") or self._built()
        for program in PROGRAMS:
            path = Path(self.root, folder, program)
            if not path.is_file():
                raise FileNotFoundError(f"{path} is missing: build {program} first")
            build_data["force_include"][str(path)] = f"pubstorm/bin/{program}"
        here = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{os.environ.get('PUBSTORM_PLATFORM') or here}"

    def _plotly(self) -> Path:
        """The packed library, beside the sources, after it was made."""
        from plotly.offline import get_plotlyjs

        path = Path(self.root, "python", PLOTLY)
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        fresh.write_bytes(gzip.compress(get_plotlyjs().encode(), mtime=0))
        fresh.replace(path)
        return path

    def _built(self) -> Path:
        """The folder of the programs, after cargo has built them for this machine."""
        if shutil.which("cargo") is None:
            message = "the programs of Pubstorm are built by Rust 1.94 or later, which is missing"
            sys.exit(f"error: {message}\n  hint: install it (rustup.rs), or a wheel of Pubstorm")
        packages = [word for program in PROGRAMS for word in ("-p", program)]
        command = ["cargo", "build", "--profile", PROFILE, "--locked", *packages]
        subprocess.run(command, cwd=self.root, check=True)
        return Path(os.environ.get("CARGO_TARGET_DIR", "target"), PROFILE)

"""The commands `pubstorm` and `python -m pubstorm`. Signals and streams are in order before the
rest of the program is imported."""

from __future__ import annotations

import gc
import signal
import sys


def main() -> None:
    """Runs the command line of this process."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Until the signals are caught, Control-C ends the process without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Modules are 100,000 objects that stay, and no garbage: fewer collections start sooner.
    gc.set_threshold(YOUNG_MAX)
    from pubstorm import output
    from pubstorm.host import signals
    from pubstorm.host.children import report_lacks

    signals.catch()
    output.guard()
    report_lacks()
    code = _code()
    if (words := output.finish()) is not None:
        output.warn(f"warning: {words}")
    # The interpreter's last collection finds nothing to do, and takes a tenth of a second.
    gc.freeze()
    sys.exit(code)


def _code() -> int:
    from pubstorm import output
    from pubstorm.host.children import lack_of
    from pubstorm.host.signals import INTERRUPTED

    try:
        from pubstorm.cli import main as command_line

        return command_line()
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if (lack := lack_of(error)) is None:
            raise
        output.warn(f"error: {lack[0]}\n  hint: {lack[1]}")
        return HOST_SHORT


HOST_SHORT = 3
YOUNG_MAX = 10_000
"""Objects made since the last collection that begin the next one; Python's own number is 700."""

if __name__ == "__main__":
    main()

"""The commands `pubstorm` and `python -m pubstorm`. Signals and streams are in order before the
rest of the program is imported."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Runs the command line of this process."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Until the signals are caught, Control-C ends the process without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from pubstorm import output
    from pubstorm.host import signals
    from pubstorm.host.spawn_errors import report_lacks

    signals.catch()
    output.guard()
    report_lacks()
    code = _code()
    if (words := output.finish()) is not None:
        output.warn(f"warning: {words}")
    sys.exit(code)


def _code() -> int:
    from pubstorm import output
    from pubstorm.host.signals import INTERRUPTED
    from pubstorm.host.spawn_errors import lack_of

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

if __name__ == "__main__":
    main()

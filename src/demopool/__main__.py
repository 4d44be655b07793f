"""``python -m demopool`` is ``demopool``."""

import sys

from .common.program import EXIT_INTERRUPTED


def main() -> None:
    """Libraries are imported here, so that Ctrl-C meanwhile is no traceback either."""
    try:
        from .commands import main as run
    except KeyboardInterrupt:
        print("demopool: interrupted", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    run()


if __name__ == "__main__":
    main()

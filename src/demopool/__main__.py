"""``python -m demopool`` is ``demopool``."""

from .commands import main

if __name__ == "__main__":
    main()

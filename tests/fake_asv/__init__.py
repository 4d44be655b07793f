"""In place of asv where only its command line and its files matter: ``python -m asv`` is fake.

The rest of the package is the real one. A time is what the commit's file SPEED says, in seconds.
"""

import sys
from pathlib import Path

__path__ += [str(Path(folder, "asv")) for folder in sys.path if Path(folder, "asv").is_dir()]

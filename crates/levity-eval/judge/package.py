# Makes `bfcl_eval`, and `mpmath` beside it, importable from the folder that the first argument names. Nothing else is imported
# from that folder: it may be the folder of a stranger, with a `json.py` of its own. This text precedes each script.

import importlib.machinery
import os
import site
import sys


class Packages:
    """Finds these two packages, and no other."""

    def __init__(self, folder):
        self.folder = folder

    def find_spec(self, name, path=None, target=None):
        if name in ("bfcl_eval", "mpmath"):
            return importlib.machinery.PathFinder.find_spec(name, [self.folder])
        return None


if os.path.isdir(site.getusersitepackages()):  # `-I` leaves out what the user installed with `pip install --user`.
    site.addsitedir(site.getusersitepackages())
if len(sys.argv) > 1:
    sys.meta_path.insert(0, Packages(sys.argv[1]))

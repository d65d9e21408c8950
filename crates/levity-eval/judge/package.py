# Makes `bfcl_eval` and `mpmath` importable from the folder in the first argument. Nothing else is
# imported from that folder, because it may be untrusted and contain its own `json.py`. This text
# precedes each script.

import importlib.machinery
import os
import site
import sys


class Packages:
    """Finds only these two packages."""

    def __init__(self, folder):
        self.folder = folder

    def find_spec(self, name, path=None, target=None):
        if name in ("bfcl_eval", "mpmath"):
            return importlib.machinery.PathFinder.find_spec(name, [self.folder])
        return None


# `-I` excludes packages that the user installed with `pip install --user`.
if os.path.isdir(site.getusersitepackages()):
    site.addsitedir(site.getusersitepackages())
if len(sys.argv) > 1:
    sys.meta_path.insert(0, Packages(sys.argv[1]))

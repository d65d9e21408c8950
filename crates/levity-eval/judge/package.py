# Makes `bfcl_eval` importable from the folder that the first argument names. Nothing else is imported from that folder:
# it may be the folder of a stranger, with a `json.py` of its own. This text precedes each script.

import importlib.util
import os
import site
import sys


def use_package(folder):
    root = os.path.join(folder, "bfcl_eval")
    first = os.path.join(root, "__init__.py")
    if not os.path.isfile(first):
        return
    spec = importlib.util.spec_from_file_location("bfcl_eval", first, submodule_search_locations=[root])
    package = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = package
    spec.loader.exec_module(package)


if os.path.isdir(site.getusersitepackages()):  # `-I` leaves out what the user installed with `pip install --user`.
    site.addsitedir(site.getusersitepackages())
if len(sys.argv) > 1:
    use_package(sys.argv[1])

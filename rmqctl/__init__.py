"""The command line: the only package that prints or prompts. Also the name under which all packages are imported."""

import os

# In a clone, formats/, store/, network/ and pipeline/ are beside this folder; in an installed rmqctl, inside it. The
# folder above is searched only in a clone, so that another project's `store` is never imported as ours.
if not os.path.isdir(os.path.join(__path__[0], "store")):
    __path__.append(os.path.dirname(__path__[0]))

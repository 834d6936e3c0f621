"""For PYTHONPATH: with this folder on it, `import deep_ep` finds moecomm.deep_ep in every process of an engine. See
docs/guide/deepep.md."""

import moecomm.deep_ep

__moecomm__ = True  # install() takes this module's place
moecomm.deep_ep.install()

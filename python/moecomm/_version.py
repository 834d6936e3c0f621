"""The version of the header that this package mirrors. tests/test_header.py compares it with include/moecomm.h."""

VERSION = "0.1.0"

#!/usr/bin/env python3
"""Which versions of vLLM and SGLang lie in build/engines (scripts/engines.sh), and what of our adapters, and of their
tests' stand-ins, does not fit their classes. Needs torch and the library; python/tests/test_engines.py drives layers.

Usage: engine_report.py [vllm] [sglang]     ends with 1 if anything does not fit, and with 2 if a wheel is not here"""

import importlib
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python/tests"), str(ROOT / "python")]


def main(names):
    from engine_wheels import missing

    status = 0
    for name in names or ["vllm", "sglang"]:
        why = missing(name)
        if why:
            print(f"engine_report.py: {why}", file=sys.stderr)
            return 2
        adapter = importlib.import_module(f"engine_{name}")
        engine = adapter.install()
        found = adapter.report(engine)
        print(f"{name} {engine.version}: {'all fits' if not found else 'does not fit'}")
        for kind, sentences in found.items():
            print("\n".join(f"  {kind}: {sentence}" for sentence in sentences))
        status = status or int(bool(found))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

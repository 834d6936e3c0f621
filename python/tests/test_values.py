"""Numbers that would wrap and unknown names are refused, with the argument's name and what is allowed."""

import pathlib
import re
import tempfile
import unittest

from support import MISSING, RANKS, moecomm, numpy, world

INTEGERS = ("nranks", "tokens_max", "ll_tokens_max", "row_bytes_max", "side_bytes_max", "topk_max", "experts_max", "timeout_ms",
            "sms", "staging_rows", "heap_bytes", "domain_size", "ll_sets", "staging_areas", "device")  # fmt: skip


def sized(name, value):
    """memory_size with one setting."""
    return moecomm.memory_size(**{"nranks": RANKS, name: value})


@unittest.skipIf(MISSING, MISSING)
class NumbersTest(unittest.TestCase):
    def test_settings_that_do_not_fit(self):
        for name in INTEGERS:
            for wrong in (2**64 + 4, -(2**63), -7):
                with self.subTest(name=name, value=wrong), self.assertRaisesRegex(
                    ValueError, rf"^{name} is {wrong}, expected"
                ):
                    sized(name, wrong)
            for wrong in (True, 4.0, "4", None):
                with self.subTest(name=name, value=wrong):
                    with self.assertRaisesRegex(TypeError, rf"^{name} is {wrong!r}, expected an integer$"):
                        sized(name, wrong)

    @unittest.skipIf(numpy is None, "numpy is not installed")
    def test_numpy_s_integers_are_integers(self):
        expected = moecomm.memory_size(RANKS, tokens_max=64)
        for kind in (numpy.int32, numpy.uint64, numpy.int8):
            self.assertEqual(moecomm.memory_size(kind(RANKS), tokens_max=kind(64)), expected)
        with self.assertRaisesRegex(TypeError, "^tokens_max is .*, expected an integer$"):
            moecomm.memory_size(RANKS, tokens_max=numpy.bool_(True))

    def test_handles_and_steps(self):
        def body(comm):
            with self.assertRaisesRegex(ValueError, r"^experts is 4294967300, expected 0..2147483647$"):
                comm.handle(2**32 + 4, 2)
            for wrong in (dict(experts=-1), dict(topk=2**32 + 1), dict(tokens_max=-1), dict(expert_alignment=2**31)):
                with self.assertRaisesRegex(
                    ValueError, f"^{next(iter(wrong))} is {next(iter(wrong.values()))}, expected"
                ):
                    comm.handle(**{"experts": 4, "topk": 2, **wrong})
            with self.assertRaisesRegex(TypeError, "^topk is True, expected an integer$"):
                comm.handle(4, True)
            with self.assertRaisesRegex(ValueError, "^rank is 4294967296, expected"):
                comm.peer(2**32)
            with self.assertRaisesRegex(ValueError, r"^shape\[1\] is -4, expected"):
                comm.window((4, -4))
            with self.assertRaisesRegex(TypeError, "^shape is 4, expected a sequence of integers$"):
                comm.window(4)
            with self.assertRaisesRegex(ValueError, "^typestr is 'float', expected a kind of number"):
                comm.window((4,), "float")
            with comm.handle(4, 2) as handle:
                with self.assertRaisesRegex(ValueError, "^tokens is 4294967296, expected"):
                    handle.route(4096, tokens=2**32)
                with self.assertRaisesRegex(ValueError, "^topk_idx is -16, expected"):
                    handle.route(-16, tokens=1)
                handle.route(None, tokens=0)
                step = dict(row_type="float32", hidden=4, out_rows_max=0)
                for wrong in (dict(hidden=2**32 + 4), dict(out_rows_max=2**64), dict(sms=-1)):
                    with self.assertRaisesRegex(
                        ValueError, f"^{next(iter(wrong))} is {next(iter(wrong.values()))}, expected"
                    ):
                        handle.dispatch(None, None, **{**step, **wrong})
                handle.route(None, tokens=0)
                handle.dispatch(None, None, **step)
                handle.combine(None, None, row_type="float32", hidden=4)

        world(body, row_bytes_max=64)

    def test_paths(self):
        def body(comm):
            with self.assertRaisesRegex(ValueError, r"^path is 'a\\x00b', which has a zero byte$"):
                comm.dump("a\0b")
            with self.assertRaisesRegex(TypeError, "^path is 7, expected a path or None$"):
                comm.dump(7)

        world(body, ranks=1)

    def test_identities(self):
        with self.assertRaisesRegex(ValueError, r"^identity has 5 bytes, expected the 128 of unique_id\(\)$"):
            moecomm.Communicator(1, 0, b"short")
        with self.assertRaisesRegex(TypeError, r"^identity is a str, expected the 128 bytes of unique_id\(\)$"):
            moecomm.Communicator(1, 0, "x" * 128)


@unittest.skipIf(MISSING, MISSING)
class NamesTest(unittest.TestCase):
    def test_settings(self):
        for name, known in (("backend", "'auto', 'host', 'cuda'"), ("modes", "'auto', 'ht', 'll'"),
                            ("log_level", "'none', 'error', 'warn', 'info', 'debug', 'trace'"),
                            ("transport", "'auto', 'tcp', 'verbs', 'ibgda'")):  # fmt: skip
            for wrong in ("HT", 1, ["host"]):
                with self.assertRaises(ValueError) as caught:
                    moecomm.memory_size(RANKS, **{name: wrong})
                self.assertEqual(str(caught.exception), f"{name} is {wrong!r}, expected one of {known}")
        with self.assertRaisesRegex(TypeError, "^log is 7, expected a callable$"):
            moecomm.memory_size(RANKS, log=7)
        with self.assertRaisesRegex(TypeError, "^log is 7, expected a callable$"):
            moecomm.memory_size(RANKS, log=7, log_level="none")
        for name in ("interface_name", "dump_folder", "watch_folder"):
            with self.assertRaisesRegex(ValueError, rf"^{name} is 'a\\x00b', which has a zero byte$"):
                moecomm.memory_size(RANKS, **{name: "a\0b"})
        missing = pathlib.Path(tempfile.gettempdir(), "moecomm is not here")
        with self.assertRaisesRegex(ValueError, rf"^config.dumpFolder \(MOECOMM_DUMP_FOLDER\) is {missing}: No such"):
            moecomm.Communicator(1, 0, moecomm.unique_id(), backend="host", dump_folder=str(missing))
        with self.assertRaisesRegex(TypeError, "^interface_name is 7, expected a str$"):
            moecomm.memory_size(RANKS, interface_name=7)

    def test_handles_and_steps(self):
        def body(comm):
            with self.assertRaises(ValueError) as caught:
                comm.handle(4, 2, layout="padded")
            known = "'flat', 'expert-major', 'expert-major-padded', 'rank-major'"
            self.assertEqual(str(caught.exception), f"layout is 'padded', expected one of {known}")
            for name in ("mode", "index_type"):
                with self.assertRaisesRegex(ValueError, f"^{name} is 'x', expected one of '"):
                    comm.handle(4, 2, **{name: "x"})
            with comm.handle(4, 2) as handle:
                handle.route(None, tokens=0)
                step = dict(row_type="float32", hidden=4, out_rows_max=0)
                for name, wrong in (
                    ("row_type", dict(row_type="x")),
                    ("cast.type", dict(cast=moecomm.Cast("x"))),
                    ("cast.scale_layout", dict(cast=moecomm.Cast("fp8", scale_layout="x"))),
                    ("describe.ids", dict(describe=moecomm.Describe(ids="x"))),
                    ("payloads[0].layout", dict(payloads=[moecomm.Payload(None, None, "x", 16)])),
                ):
                    with self.assertRaisesRegex(ValueError, f"^{re.escape(name)} is 'x', expected one of "):
                        handle.dispatch(None, None, **{**step, **wrong})
                for wrong in ("on_fault", "duplicates"):
                    with self.assertRaisesRegex(ValueError, f"^{wrong} is 'x', expected one of '"):
                        comm.handle(4, 2, **{wrong: "x"})
                with self.assertRaisesRegex(ValueError, "^weights is 'x', expected one of 'applied', 'apply'$"):
                    handle.combine(None, None, row_type="float32", hidden=4, weights="x")

        world(body, row_bytes_max=64)

    def test_the_nearest_setting(self):
        with self.assertRaisesRegex(TypeError, r"^unknown settings: token_max; did you mean 'tokens_max'\?$"):
            moecomm.memory_size(RANKS, token_max=4)
        with self.assertRaisesRegex(TypeError, "^unknown settings: token_max, zzz; did you mean 'tokens_max'[?]$"):
            moecomm.Communicator.from_env(zzz=1, token_max=4)
        with self.assertRaisesRegex(TypeError, "^unknown settings: zzz$"):
            moecomm.Communicator(1, 0, moecomm.unique_id(), zzz=1)
        with self.assertRaisesRegex(ValueError, r"^transport is 'verb', expected one of .*; did you mean 'verbs'\?$"):
            moecomm.memory_size(RANKS, transport="verb")

    def test_the_nearest_keyword_of_a_handle_and_of_its_calls(self):
        def body(comm):
            with self.assertRaisesRegex(TypeError, r"^handle\(\) has no keyword 'layot'; did you mean 'layout'\?$"):
                comm.handle(4, 2, layot="flat")
            with self.assertRaisesRegex(TypeError, r"^handle\(\) has no keyword 'zzz', expected one of tokens_max, "):
                comm.handle(4, 2, zzz="flat")
            with self.assertRaisesRegex(ValueError, r"^layout is 'expert_major', .*; did you mean 'expert-major'\?$"):
                comm.handle(4, 2, layout="expert_major")
            with comm.handle(4, 2) as handle:
                handle.route(None, tokens=0)
                step = dict(row_type="float32", hidden=4)
                with self.assertRaisesRegex(TypeError, r"^combine\(\) has no keyword 'weight'; did you mean 'weights'\?$"):
                    handle.combine(None, None, **step, weight="apply")
                with self.assertRaisesRegex(ValueError, r"^wire is 'fp8block', .*; did you mean 'fp8-block'\?$"):
                    handle.combine(None, None, **step, wire="fp8block")
                with self.assertRaisesRegex(ValueError, "^cast.type is 'fp8_ue8m0', .*; did you mean 'fp8-ue8m0'[?]$"):
                    handle.dispatch(None, None, **step, out_rows_max=0, cast=moecomm.Cast("fp8_ue8m0"))
                with self.assertRaisesRegex(ValueError, "^payloads.0..bytes is 4294967296, expected 4"):
                    payload = moecomm.Payload(None, None, bytes=2**32)
                    handle.dispatch(None, None, **step, out_rows_max=0, payloads=[payload])
                with self.assertRaisesRegex(TypeError, r"^dispatch\(\) has no keyword 'payload'; did you mean 'payloads'\?$"):
                    handle.dispatch(None, None, **step, out_rows_max=0, payload=[payload])

        world(body, ranks=1, row_bytes_max=64)


if __name__ == "__main__":
    unittest.main()

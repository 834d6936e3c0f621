"""Prepared calls change nothing but the time: a handle that keeps them has the results and the refusals of a handle
that checks every call."""

import ctypes
import random
import threading
import unittest

from support import MISSING, numpy as np, world

from moecomm import Cast, Describe, Grads, Payload, Ready, _native, options
from moecomm.prepared import FORMS_MAX, Prepared, PreparedCalls, form_of, pointers

EXPERTS, TOPK, HIDDEN, TOKENS = 6, 2, 16, 5


class Forgetful(PreparedCalls):
    """Checks every call."""

    def find(self, form, addresses, least):
        return None


def outcome(call, *arguments, **keywords):
    try:
        call(*arguments, **keywords)
    except Exception as error:  # noqa: B902
        return type(error).__name__, str(error)
    return None


def arrays_of(value):
    """The arrays in an argument."""
    if isinstance(value, (tuple, list)):
        return [array for part in value for array in arrays_of(part)]
    return [value] if hasattr(value, "tobytes") else []


def with_own_outputs(value, name=""):
    """An argument whose arrays that are written are copies."""
    if isinstance(value, list):
        return [with_own_outputs(part) for part in value]
    if isinstance(value, tuple):
        return type(value)(*(with_own_outputs(part, field) for part, field in zip(value, value._fields)))
    is_output = name.startswith("out") and hasattr(value, "copy")
    return value.copy() if is_output and value.flags.writeable and value.flags.c_contiguous else value


class Program:
    """Random calls on two handles with the same arguments. The arguments of later calls often differ in one thing."""

    def __init__(self, comm, seed):
        self.random = random.Random(seed)
        layout = self.random.choice(("flat", "expert-major", "expert-major-padded", "rank-major"))
        mode = self.random.choice(("ht", "ll"))
        shape = dict(layout=layout, mode=mode, tokens_max=8, on_fault=self.random.choice(("raise", "status")))
        self.handles = [comm.handle(EXPERTS, TOPK, **shape) for _ in range(2)]
        self.handles[1]._prepared = Forgetful()
        self.layout, self.outcomes, self.reused = layout, 0, 0
        self.tokens, self.bound = TOKENS, 8

    def rows_there(self):
        """Rows of arrays; sometimes too few."""
        bound = self.random.choice((self.bound, self.bound, 8, 6))
        if self.layout == "rank-major":
            return bound
        if self.layout == "expert-major-padded":
            return EXPERTS * bound
        return max(self.tokens - self.random.choice((0, 0, 1)), 0)

    def array(self, shape, dtype):
        """Mostly a right value, and sometimes a wrong one."""
        odd = self.random.random()
        if odd > 0.1:
            return np.zeros(shape, dtype)
        if odd < 0.02:
            return np.zeros((*shape[:-1], shape[-1] + 1), dtype)
        if odd < 0.04 and shape[0] > 0:
            return np.zeros((shape[0] - 1, *shape[1:]), dtype)
        if odd < 0.06:
            return np.zeros(shape, np.int16)
        if odd < 0.07:
            return np.zeros((*shape[:-1], 2 * shape[-1]), dtype)[..., ::2]
        if odd < 0.08:
            array = np.zeros(shape, dtype)
            array.setflags(write=False)
            return array
        if odd < 0.09:
            return None
        return "rows"

    def both(self, name, positional, keywords, out):
        """Makes the call on both handles, with outputs of their own. The array `out` is the output."""
        found = []
        for handle in self.handles:
            mine = {key: with_own_outputs(value, key) for key, value in keywords.items()}
            target = with_own_outputs(out, "out")
            before = {id(prepared) for prepared in handle._prepared._by_form.values()}
            failure = outcome(getattr(handle, name), *positional, target, **mine)
            after = {id(prepared) for prepared in handle._prepared._by_form.values()}
            self.reused += handle is self.handles[0] and failure is None and before == after
            arrays = [array for _, value in sorted(mine.items()) for array in arrays_of(value)]
            results = [array.tobytes() for array in (*arrays_of(target), *arrays)]
            status = outcome(lambda: (_ for _ in ()).throw(handle.status() or KeyError()))  # noqa: B023
            found.append((failure, results, status, handle._tokens, handle._capacity))
        assert found[0] == found[1], f"{name}{positional} {keywords}: {found}"
        self.outcomes += found[0][0] is not None
        return found[0][0] is None

    def options(self):
        chosen = dict(sms=self.random.choice((0, 0, 0, 2)))
        if self.random.random() < 0.05:
            chosen["sms"] = self.random.choice((True, -1, 1.0, "2"))
        if self.random.random() < 0.03:
            chosen["smss"] = 1
        return chosen

    def entries(self, room):
        return (room,) if self.layout.startswith("expert") else (room, TOPK)

    def described(self, room):
        """Options of a dispatch."""
        chosen, fields = self.options(), {}
        if self.random.random() < 0.5:
            fields["out_source_index"] = self.array((room,), np.int32)
        if self.random.random() < 0.5:
            fields["out_topk_weights"] = self.array(self.entries(room), np.float32)
        if self.random.random() < 0.05:
            fields["invalid_id"] = self.random.choice((-7, -1.0, True, 0, None, []))
        if fields or self.random.random() < 0.1:
            chosen["describe"] = Describe(**fields)
        if self.random.random() < 0.4:
            sent, kept = self.array((self.tokens, 4), np.int32), self.array((room, 4), np.int32)
            if self.random.random() < 0.2:
                kept = np.zeros((room, 6), np.int32)[:, :4]
            chosen["payloads"] = [Payload(sent, kept, bytes=self.random.choice((None, None, None, 16, 16.0, 12)))]
            if self.random.random() < 0.2:
                chosen["payloads"].append(Payload(self.array((self.tokens, 2), np.int8), self.array((room, 2), np.int8)))
        return chosen

    def step(self):
        if self.random.random() < 0.1:
            self.bound = self.random.choice((8, 6))
            for handle in self.handles:
                handle.set_tokens_bound(self.bound)
        self.tokens = self.random.choice((TOKENS, TOKENS, 3, 0))
        used = self.random.choice((1, 0.5, 0))
        ids = [[self.random.randrange(EXPERTS) if self.random.random() < used else -1, -1] for _ in range(self.tokens)]
        ids = np.array(ids, np.int32).reshape(-1, TOPK)
        weights = None if self.random.random() < 0.5 else np.ones((self.tokens, TOPK), np.float32)
        rows = self.array((self.tokens, HIDDEN), np.float32)
        if hasattr(rows, "size") and rows.flags.writeable:
            rows[...] = np.arange(rows.size).reshape(rows.shape)
        room = self.rows_there()
        described = self.described(room)
        out = self.array((room, HIDDEN), np.float32)
        if self.random.random() < 0.5:
            done = self.both("route_dispatch", (ids, weights, rows), described, out)
        else:
            if self.random.random() < 0.2:
                odd = self.random.choice((ids.astype(np.int16), ids[:, :1].copy(), ids[:, ::-1], ids.tolist(), None))
                found = [outcome(handle.route, odd, weights) for handle in self.handles]
                assert found[0] == found[1], (odd, found)
            for handle in self.handles:
                handle.route(ids, weights)
            done = self.both("dispatch", (rows,), described, out)
        for _ in range(self.random.choice((0, 1, 2)) if done else 1):
            given = self.options() if self.random.random() < 0.3 else {}
            if self.random.random() < 0.3:
                given["bias0"] = self.array((self.tokens, HIDDEN), np.float32)
            if self.random.random() < 0.3:
                grads = self.array(self.entries(self.rows_there()), np.float32)
                given["grads"] = Grads(grads, self.array((self.tokens, TOPK), np.float32))
            there = self.array((self.rows_there(), HIDDEN), np.float32)
            self.both("combine", (there,), given, self.array((self.tokens, HIDDEN), np.float32))


@unittest.skipIf(MISSING, MISSING)
@unittest.skipIf(np is None, "numpy is not installed")
class PreparedTest(unittest.TestCase):
    def test_random_programs_do_and_refuse_the_same(self):
        outcomes, reused = [], []

        def body(comm):
            for seed in range(40):
                program = Program(comm, seed)
                for _ in range(40):
                    program.step()
                for handle in program.handles:
                    handle.destroy()
                outcomes.append(program.outcomes)
                reused.append(program.reused)

        world(body, 1, row_bytes_max=512, side_bytes_max=32)
        self.assertGreater(sum(outcomes), 200)
        self.assertGreater(sum(reused), 300)

    def test_an_output_that_was_large_enough_is_measured_again(self):
        def body(comm):
            rows, out = np.ones((4, HIDDEN), np.float32), np.zeros((6, HIDDEN), np.float32)
            few, many = np.full((4, TOPK), -1, np.int32), np.array([[0, 1]] * 4, np.int32)
            few[0] = 0, 1
            by_slot = comm.handle(EXPERTS, TOPK, layout="rank-major", mode="ll", tokens_max=8)
            by_expert = comm.handle(EXPERTS, TOPK, layout="expert-major", mode="ll", tokens_max=8)
            for handle, ids, bound in ((by_slot, many, 6), (by_slot, many, 0), (by_expert, few, 0), (by_expert, many, 0)):
                handle.set_tokens_bound(bound)
                handle.route(ids)
                if bound == 6 or ids is few:
                    handle.dispatch(rows, out)
                    handle.combine(out, rows.copy())
                else:
                    with self.assertRaisesRegex(ValueError, "out_rows .* room for 6 rows, but 8 arrive"):
                        handle.dispatch(rows, out)
                    with self.assertRaisesRegex(ValueError, "at least 8 rows"):
                        handle.combine(out, rows.copy())
            by_slot.destroy()
            by_expert.destroy()

        world(body, 1)

    def test_a_struct_in_use_is_nobody_elses(self):
        def body(comm):
            handle = comm.handle(EXPERTS, TOPK, layout="rank-major", mode="ll", tokens_max=8)
            ids, rows = np.zeros((1, TOPK), np.int32) - 1, np.ones((1, HIDDEN), np.float32)
            ids[0, 0] = 0
            out = np.zeros((8, HIDDEN), np.float32)
            handle.route_dispatch(ids, None, rows, out)
            (prepared,) = handle._prepared._by_form.values()
            with prepared.busy:
                handle.route_dispatch(ids, None, rows, out)
                (other,) = handle._prepared._by_form.values()
                self.assertIsNot(prepared, other)
            handle.combine(out, rows)
            handle.destroy()

        world(body, 1)

    def test_there_are_not_more_and_more_of_them(self):
        def body(comm):
            handle = comm.handle(EXPERTS, TOPK, layout="flat", mode="ht", tokens_max=2 * FORMS_MAX)
            most = 0
            for tokens in range(1, 2 * FORMS_MAX):
                out = np.zeros((tokens, HIDDEN), np.float32)
                handle.route_dispatch(np.zeros((tokens, 2), np.int32) - 1, None, out, out.copy())
                most = max(most, len(handle._prepared._by_form))
            self.assertEqual(most, FORMS_MAX)
            handle.destroy()

        world(body, 1)

    def test_threads_may_use_handles_of_their_own(self):
        def body(comm):
            ids, rows = np.array([[0, 1]], np.int32), np.ones((1, HIDDEN), np.float32)
            handles = [comm.handle(EXPERTS, TOPK, mode="ht") for _ in range(2)]
            lock, failures = threading.Lock(), []

            def run(handle, number):
                try:
                    mine, out, sums = rows * number, np.zeros_like(rows), np.zeros_like(rows)
                    for _ in range(200):
                        with lock:  # one call of a communicator at a time
                            handle.route_dispatch(ids, None, mine, out)
                            handle.combine(out, sums)
                        self.assertTrue((sums == mine).all())
                except BaseException as failure:  # noqa: B902
                    failures.append(failure)

            threads = [threading.Thread(target=run, args=(handle, 1 + i)) for i, handle in enumerate(handles)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(failures, [])
            for handle in handles:
                handle.destroy()

        world(body, 1)


class FormsTest(unittest.TestCase):
    """Needs no library."""

    def test_forms_tell_equal_values_apart(self):
        forms = {form_of((), (), dict(sms=sms))[0] for sms in (1, 1.0, True)}
        self.assertEqual(len(forms), 3)
        self.assertEqual(form_of((), (), dict(sms=[])), ((), ()))
        self.assertEqual(form_of((), (object(),), {}), ((), ()))
        self.assertEqual(form_of((), (2**64,), {}), ((), ()))
        self.assertEqual(form_of((), (64,), {})[1], [64])

    def test_forms_tell_parts_apart(self):
        ready = [Ready(64, *others) for others in ((), (64,), (64.0,), (0, 2), (0, True), (0, 1, 8))]
        described = [Describe(64), Describe(None, 64), Describe(64, ids="global"), Describe(64, invalid_id=-1.0), Describe()]
        casts = [Cast("fp8", 64), Cast("mxfp8", 64), Cast("fp8", 64, exact=True), Cast("fp8", input_scale=64)]
        sent = [(), (Payload(64, 64),), (Payload(64, 64),) * 2, (Payload(64, 64, "128x4"),), (Payload(64, 64, bytes=16),)]
        options = [dict(ready=one) for one in ready] + [dict(describe=one) for one in described]
        options += [dict(cast=one) for one in casts] + [dict(payloads=one) for one in sent]
        options += [dict(grads=Grads(64, None)), dict(grads=Grads(None, 64)), dict(grads=None), {}]
        self.assertEqual(len({form_of((), (), one)[0] for one in options}), len(options))
        self.assertEqual(form_of((), (), dict(cast=Cast("fp8", 80, exact=True)))[1], [80])
        self.assertEqual(form_of((), (), dict(payloads=[Payload(16, 32), Payload(None, 48)]))[1], [16, 32, 48])
        for wrong in (dict(cast=Cast("fp8", exact=[])), dict(payloads=[(16, 32)]), dict(describe=Describe(object()))):
            self.assertEqual(form_of((), (), wrong), ((), ()))

    def test_every_option_with_an_array_is_known(self):
        plain = {"row_type", "hidden", "out_rows_max", "pad_indices", "pad_rows", "send_only", "sms", "weights", "wire"}
        parts = {"cast", "describe", "payloads", "grads", "ready"}
        known = {*options.DISPATCH_DEFAULTS, *options.COMBINE_DEFAULTS}
        self.assertEqual(options.ARRAYS, known - plain - parts)

    def test_pointers_in_nested_structs_are_replaced(self):
        cast = _native.moeCast_t(outScales=0x1000, globalScale=0x2000)
        payloads = (_native.moePayload_t * 2)()
        payloads[0].out, payloads[1].out = 0x3000, 0x4000
        setattr(payloads[1], "in", 0x5000)
        args = _native.moeDispatchArgs_t(rows=0x6000, hidden=8, payloads=payloads, payloadCount=2, cast=ctypes.pointer(cast))
        given = dict(
            cast=Cast("nvfp4", 0x1000, global_scale=0x2000),
            payloads=[Payload(None, 0x3000), Payload(0x5000, 0x4000)],
        )
        arrays = (0x7000, 0x6000)
        form, addresses = form_of((), arrays, given)
        calls, prepared = PreparedCalls(), Prepared(args, 1, None)
        self.assertTrue(prepared.learn(pointers(args, (None, "rows"), arrays, given), addresses))
        del cast, payloads  # the arguments keep them
        calls._by_form.keep(form, prepared)
        prepared.busy.release()
        found = calls.find(form, [address + 0x100000 for address in addresses], None)
        self.assertIs(found, prepared)
        args = found.args
        self.assertEqual((args.rows, args.cast[0].outScales, args.cast[0].globalScale), (0x106000, 0x101000, 0x102000))
        self.assertEqual([payload.out for payload in args.payloads[:2]], [0x103000, 0x104000])
        self.assertEqual(getattr(args.payloads[1], "in"), 0x105000)
        self.assertIsNone(getattr(args.payloads[0], "in"))
        wrong = [0x7000, 0x6000, 0x1000, 0x2000, 0x3000, 0x5000, 0x9000]
        self.assertFalse(Prepared(args, 1, None).learn(pointers(args, (None, "rows"), arrays, given), wrong))


if __name__ == "__main__":
    unittest.main()

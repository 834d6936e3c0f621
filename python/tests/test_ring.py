"""HandleRing, with handles that only count: the handle of a route follows from the order of calls alone."""

import random
import unittest

from support import moecomm
from moecomm import ring


class Counting:
    """Stands for a handle and its communicator."""

    made = 0

    def handle(self, **settings):
        self.made += 1
        return Counting()

    def __init__(self):
        self.calls = self.routes = 0
        self.rings = set()

    def share_calls(self, other):
        pass

    def destroy(self):
        pass


class RingTest(unittest.TestCase):
    def make(self, in_flight):
        comm = Counting()
        return comm, ring.HandleRing(comm, 8, 2, in_flight)

    def route(self, handles, backward=False):
        ticket, handle = handles.next(backward)
        self.assertEqual((ticket, handle), handles.next(backward))
        handle.routes += 1
        handles.commit()
        self.assertIs(handles.use(ticket), handle)
        return ticket, handle

    def test_random_programs_keep_what_was_promised(self):
        for seed in range(200):
            program = random.Random(seed)
            in_flight = program.choice((1, 2, 4, 9))
            comm, handles = self.make(in_flight)
            live = {}  # ticket: (handle, calls that its backward pass still makes)
            for _ in range(100):
                waiting = [ticket for ticket, (_, awaits) in live.items() if awaits]
                if waiting and program.random() < 0.6:
                    ticket = program.choice(waiting)
                    handle, awaits = live[ticket]
                    handles.note(ticket, "combine")  # of the forward pass, or the last one
                    if awaits[0] == "combine":
                        live[ticket] = handle, []
                    else:
                        handles.note(ticket, "dispatch")
                        live[ticket] = handle, ["combine"]
                else:
                    backward = program.random() < 0.5 and len(waiting) < 20
                    ticket, handle = self.route(handles, backward)
                    live[ticket] = handle, ["dispatch", "combine"] if backward else None
                last = max(live, default=0)
                for ticket, (handle, awaits) in list(live.items()):
                    if awaits or (awaits is None and last - ticket < in_flight):
                        self.assertIs(handles.use(ticket), handle)
                    else:
                        del live[ticket]
            self.assertLess(comm.made, 20 + max(in_flight, ring.AT_ONCE))

    def test_without_backward_passes_handles_are_used_in_turn(self):
        for in_flight in (1, 3, 20):
            comm, handles = self.make(in_flight)
            used = [self.route(handles)[1] for _ in range(3 * in_flight)]
            self.assertEqual(used[:in_flight], used[in_flight : 2 * in_flight])
            self.assertEqual(len(set(map(id, used))), in_flight)
            with self.assertRaisesRegex(moecomm.InvalidUsage, f"in_flight is {in_flight}"):
                handles.use(2 * in_flight - 1)

    def test_ranks_with_different_routes_are_alike_after_a_recovery(self):
        seen = []
        for routes in (0, 1, 2, 7):
            comm, handles = self.make(3)
            tickets = [self.route(handles)[0] for _ in range(routes)]
            handles.next()  # and one that was not made
            (recovering,) = comm.rings
            recovering.restart()
            for ticket in tickets:
                with self.assertRaisesRegex(moecomm.InvalidUsage, f"ticket {ticket} is gone: the communicator has recovered"):
                    handles.use(ticket)
            later = [self.route(handles) for _ in range(9)]
            self.assertIs(handles.use(later[-1][0]), later[-1][1])
            seen.append([handles.handles.index(handle) for _, handle in later])
        self.assertEqual(seen, [seen[0]] * 4)

    def test_backward_passes_that_never_come_are_given_up_at_last(self):
        comm, handles = self.make(4)
        for _ in range(ring.HELD_MOST + 10):
            self.route(handles, True)
        self.assertEqual(comm.made, ring.HELD_MOST)
        with self.assertRaises(moecomm.InvalidUsage):
            handles.use(9)
        handles.use(10)

    def test_a_route_that_raised_counts(self):
        _, handles = self.make(2)
        ticket, handle = handles.next()
        handle.routes += 1
        self.assertEqual(handles.next()[0], ticket + 1)


if __name__ == "__main__":
    unittest.main()

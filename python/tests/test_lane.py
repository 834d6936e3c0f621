"""The streams of a Buffer's calls, with stand-ins for streams and tensors: no call takes a stream, an event or a record
that nothing needs. Needs torch."""

import unittest
from unittest import mock

from support_ranks import SKIP, torch

if SKIP is None:
    from moecomm.deep_ep import events
    from moecomm.torch import memory


class Stream:
    def __init__(self, name, done):
        self.name, self._done = name, done

    def wait_stream(self, other):
        self._done.append(f"{self.name} waits for {other.name}")

    def wait_event(self, event):
        self._done.append(f"{self.name} waits for {event}")


class Tensor:
    def __init__(self, name, done):
        self.name, self._done = name, done

    def record_stream(self, stream):
        self._done.append(f"{stream.name} keeps {self.name}")


@unittest.skipIf(SKIP, SKIP)
class LaneTest(unittest.TestCase):
    def run_call(self, previous=False, asynchronous=False, there=False):
        """The events of a call with one tensor of each kind."""
        done = []
        lane = events.Lane(torch.device("cpu"))
        lane.stream, current = Stream("own", done), Stream("current", done)
        lane.current = lambda: current
        event = mock.Mock(event=events.EventHandle()) if previous else None
        if event is not None:
            event.event._event = "the event"
        stream = lane.start(None, event, asynchronous)
        used, made, out = (Tensor(name, done) for name in ("used", "made", "out"))
        lane.finish(stream, asynchronous, (used, None), (made, None), (out, None), there)
        return done

    def test_a_call_that_lets_nothing_run_beside_it_takes_the_current_stream(self):
        self.assertEqual(self.run_call(), [])
        self.assertEqual(self.run_call(there=True), [])

    def test_behind_an_event_the_current_stream_waits_at_the_end(self):
        done = ["own waits for the event", "current keeps made", "current waits for own"]
        self.assertEqual(self.run_call(previous=True), done)
        self.assertEqual(self.run_call(previous=True, there=True), [*done[:2], "current keeps out", done[2]])

    def test_an_asynchronous_call_keeps_tensors_for_the_stream_that_did_not_make_them(self):
        begin = ["own waits for current", "current keeps made"]
        self.assertEqual(self.run_call(asynchronous=True), [*begin, "own keeps used", "own keeps out"])
        self.assertEqual(self.run_call(asynchronous=True, there=True), [*begin, "current keeps out", "own keeps used"])

    def test_the_current_stream_is_asked_for_when_its_address_changes(self):
        made = mock.Mock(side_effect=["first", "second", "first again"])
        addresses = mock.Mock(side_effect=[16, 16, 32, 32, 16])
        with mock.patch.object(memory, "_address_of_current", addresses), mock.patch("torch.cuda.current_stream", made):
            current = memory.CurrentStream(torch.device("cuda", 1))
            found = [current.get() for _ in range(5)]
        self.assertEqual(found, ["first", "first", "second", "second", "first again"])
        self.assertEqual(made.call_args_list, [mock.call(torch.device("cuda", 1))] * 3)


if __name__ == "__main__":
    unittest.main()
